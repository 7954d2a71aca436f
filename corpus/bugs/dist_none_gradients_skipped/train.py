import os
import socket
from datetime import timedelta
import torch
import torch.nn as nn
import torch.distributed as dist
import torch.multiprocessing as mp


def setup(rank, world, port):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(port)
    dist.init_process_group("gloo", rank=rank, world_size=world, timeout=timedelta(seconds=15))


class TwoTasks(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Linear(10, 24)
        self.heads = nn.ModuleDict({"a": nn.Linear(24, 2), "b": nn.Linear(24, 2), "c": nn.Linear(24, 2)})

    def forward(self, x, task):
        return self.heads[task](torch.relu(self.trunk(x)))


def average(model, world):
    for p in model.parameters():
        if p.grad is None:
            continue
        dist.all_reduce(p.grad)
        p.grad /= world


def worker(rank, world, port):
    setup(rank, world, port)
    torch.manual_seed(0)
    model = TwoTasks()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    g = torch.Generator().manual_seed(40 + rank)
    tasks = ["a", "b", "c"] if rank == 0 else ["a", "c"]
    for step in range(24):
        opt.zero_grad()
        total = 0.0
        for task in tasks:
            x = torch.randn(16, 10, generator=g)
            y = (x[:, "abc".index(task)] > 0).long()
            total = total + nn.functional.cross_entropy(model(x, task), y)
        total.backward()
        average(model, world)
        opt.step()
    print(f"rank {rank} loss {total.item():.4f}", flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    mp.spawn(worker, args=(2, free_port()), nprocs=2)
