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


import copy


def worker(rank, world, port):
    setup(rank, world, port)
    torch.manual_seed(10 + rank)
    student = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 12))
    teacher = copy.deepcopy(student).requires_grad_(False)
    ddp = DDP(student)
    opt = torch.optim.AdamW(ddp.parameters(), lr=0.003)
    g = torch.Generator().manual_seed(3 + rank)
    for step in range(30):
        x = torch.randn(32, 8, generator=g)
        with torch.no_grad():
            target = teacher(x + 0.1 * torch.randn(32, 8, generator=g))
        loss = nn.functional.mse_loss(ddp(x + 0.1 * torch.randn(32, 8, generator=g)), nn.functional.normalize(target))
        opt.zero_grad()
        loss.backward()
        opt.step()
        with torch.no_grad():
            for p, q in zip(teacher.parameters(), student.parameters()):
                p.mul_(0.99).add_(q, alpha=0.01)
        if step % 10 == 0:
            print(f"rank {rank} step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    mp.spawn(worker, args=(2, free_port()), nprocs=2)
