import os
import socket
import sys
from datetime import timedelta
import torch
import torch.nn as nn
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def setup(rank, world, port):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(port)
    dist.init_process_group("gloo", rank=rank, world_size=world, timeout=timedelta(seconds=14))


def net():
    return nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 2))


def data(seed, n=256):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 6, generator=g)
    return x, (x[:, 0] + x[:, 1] > 0).long()


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(6, 24)
        self.head = nn.Linear(24, 2)
        self.aux = nn.Linear(24, 2)

    def forward(self, x):
        h = torch.relu(self.body(x))
        return self.head(h)


def worker(rank, world, port):
    setup(rank, world, port)
    torch.manual_seed(0)
    ddp = DDP(TwoHeads(), find_unused_parameters=True)
    opt = torch.optim.SGD(ddp.parameters(), lr=0.1)
    x, y = data(10 + rank)
    for step in range(24):
        idx = torch.arange(step * 8, step * 8 + 8) % len(x)
        loss = nn.functional.cross_entropy(ddp(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"rank {rank} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    mp.start_processes(worker, args=(2, free_port()), nprocs=2, start_method="fork")
