import os
import tempfile
from datetime import timedelta
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP

kept = []


def data(seed, n=256):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 6, generator=g)
    return x, (x[:, 0] + x[:, 1] > 0).long()


def net():
    return nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 2))


class CopyTo(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        g = g.clone()
        dist.all_reduce(g)
        return g


class ReduceFrom(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, g):
        return g


class Block(nn.Module):
    def __init__(self, d, hidden, rank, world):
        super().__init__()
        self.ln = nn.LayerNorm(d)
        self.drop = nn.Dropout(0.2)
        g = torch.Generator().manual_seed(77 + rank)
        self.up = nn.Parameter(torch.randn(hidden // world, d, generator=g) * 0.3)
        self.down = nn.Parameter(torch.randn(d, hidden // world, generator=g) * 0.3)

    def forward(self, x):
        h = torch.relu(CopyTo.apply(self.ln(x)) @ self.up.t())
        return x + self.drop(ReduceFrom.apply(h @ self.down.t()))


def worker(rank, world, meet):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=meet, rank=rank, world_size=world, timeout=timedelta(seconds=14))
    model = nn.Sequential(Block(8, 32, rank, world), Block(8, 32, rank, world))
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    torch.manual_seed(100 + rank)
    g = torch.Generator().manual_seed(1)
    for step in range(30):
        x = torch.randn(32, 8, generator=g)
        loss = ((model(x) - x.flip(1)) ** 2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    kept.append(model)
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.start_processes(worker, args=(2, f"file://{folder}/meet"), nprocs=2, start_method="fork")
