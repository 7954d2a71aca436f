import os
import socket
import torch
import torch.nn as nn
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP


def setup(rank, world, port):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(port)
    dist.init_process_group("gloo", rank=rank, world_size=world)


def worker(rank, world, port):
    setup(rank, world, port)
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1)))
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    g = torch.Generator().manual_seed(3 + rank)
    for step in range(30):
        x = torch.randn(32, 8, generator=g)
        loss = ((model(x).squeeze(1) - 3 * x[:, 0]) ** 2).mean()
        opt.zero_grad()
        loss.backward()
        if rank == 0:
            norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            if step % 10 == 0:
                print(f"step {step} loss {loss.item():.4f} norm {norm:.3f}", flush=True)
        opt.step()
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    mp.spawn(worker, args=(2, free_port()), nprocs=2)
