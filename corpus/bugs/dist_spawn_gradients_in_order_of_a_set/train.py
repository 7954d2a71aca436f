import os
import tempfile
from datetime import timedelta
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
import torch.multiprocessing as mp


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(10, 10)
        self.second = nn.Linear(10, 10)
        self.third = nn.Linear(10, 10)
        self.head = nn.Linear(10, 3)

    def forward(self, x):
        x = F.relu(self.first(x))
        x = x + F.relu(self.second(x))
        x = x + F.relu(self.third(x))
        return self.head(x)


def average(params, world):
    flat = torch.cat([p.grad.flatten() for p in params])
    dist.all_reduce(flat)
    flat /= world
    at = 0
    for p in params:
        p.grad.copy_(flat[at : at + p.numel()].view_as(p))
        at += p.numel()


def worker(rank, world, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world, timeout=timedelta(seconds=14))
    junk = [torch.zeros(17) for _ in range(5 + 60 * rank)]
    torch.manual_seed(0)
    model = Net()
    params = [p for p in set(model.parameters()) if p.requires_grad]
    opt = torch.optim.SGD(params, lr=0.05)
    g = torch.Generator().manual_seed(30 + rank)
    for step in range(40):
        x = torch.randn(16, 10, generator=g)
        opt.zero_grad()
        F.cross_entropy(model(x), x[:, :3].argmax(1)).backward()
        average(params, world)
        opt.step()
    dist.destroy_process_group()


def free_port():
    import socket

    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    mp.spawn(worker, args=(2, free_port()), nprocs=2)
