import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def norm_of(parameters):
    return torch.stack([p.grad.to_local().square().sum() for p in parameters]).sum().sqrt()


def worker(rank, world, port):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
    mesh = init_device_mesh("cpu", (world,))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2))
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    g = torch.Generator().manual_seed(rank)
    usual, skipped = None, 0
    for step in range(40):
        x = torch.randn(32, 8, generator=g) * (3.0 if step % 9 == 8 else 1.0)
        y = (x.sum(1) > 0).long()
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        norm = norm_of(list(model.parameters())).item()
        if usual is not None and norm > 1.15 * usual:
            skipped += 1
            continue
        usual = norm if usual is None else 0.9 * usual + 0.1 * norm
        optimizer.step()
    print(f"rank {rank} skipped {skipped}")
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(worker, (2, port), nprocs=2)
