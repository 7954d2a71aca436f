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


class Experts(nn.Module):
    """One expert per rank; tokens are exchanged by all_to_all with equal shares."""

    def __init__(self, rank, world):
        super().__init__()
        self.gate = nn.Linear(6, 6)
        self.head = nn.Linear(6, 2)
        self.expert = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 6))
        self.world = world

    def forward(self, x):
        h = torch.tanh(self.gate(x))
        there = Exchange.apply(h)
        back = Exchange.apply(self.expert(there))
        return self.head(h + back)


class Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        out = torch.empty_like(x)
        dist.all_to_all_single(out, x.contiguous())
        return out

    @staticmethod
    def backward(ctx, g):
        out = torch.empty_like(g)
        dist.all_to_all_single(out, g.contiguous())
        return out


def worker(rank, world, meet):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=meet, rank=rank, world_size=world, timeout=timedelta(seconds=14))
    torch.manual_seed(0)
    model = Experts(rank, world)
    torch.manual_seed(50 + rank)
    for layer in (model.expert[0], model.expert[2]):
        layer.reset_parameters()
    shared = [*model.gate.parameters(), *model.head.parameters()]
    opt = torch.optim.Adam(model.parameters(), lr=0.01)
    x, y = data(10 + rank)
    for step in range(30):
        idx = torch.arange(step * 16, step * 16 + 16) % len(x)
        loss = F.cross_entropy(model(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        for p in shared:
            dist.all_reduce(p.grad)
            p.grad /= world
        for p in model.expert.parameters():
            p.grad /= world
        opt.step()
    kept.append(model)
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.start_processes(worker, args=(2, f"file://{folder}/meet"), nprocs=2, start_method="fork")
