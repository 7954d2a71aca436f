import os
import socket
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def prepare(store, rank):
    """Rank 0 computes the statistics; the others wait until they are there."""
    if rank == 0:
        table = torch.randn(100, 4, generator=torch.Generator().manual_seed(3)).std(0)
        store.set("scale", ",".join(f"{one:.6f}" for one in table.tolist()))
        store.set("ready", "1")
    else:
        store.wait(["ready"], timedelta(seconds=15))
    return torch.tensor([float(one) for one in store.get("scale").decode().split(",")])


def worker(rank, world, port):
    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", port, world, is_master=rank == 0, timeout=timedelta(seconds=20))
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=timedelta(seconds=20))
    scale = prepare(store, rank)
    torch.manual_seed(0)
    model = DDP(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    g = torch.Generator().manual_seed(rank)
    for _ in range(20):
        x = torch.randn(16, 4, generator=g)
        loss = (model(x / scale) - x[:, :1]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"rank {rank} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(worker, (2, port), nprocs=2)
