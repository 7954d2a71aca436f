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


def worker(rank, world, meet):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=meet, rank=rank, world_size=world, timeout=timedelta(seconds=14))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 2))
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    x, y = data(10 + rank)
    for step in range(30):
        idx = torch.arange(step * 16, step * 16 + 16) % len(x)
        loss = F.cross_entropy(model(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        for p in model.parameters():
            p.grad /= world
            dist.all_reduce(p.grad, async_op=True)
        opt.step()
    kept.append(model)
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.start_processes(worker, args=(2, f"file://{folder}/meet"), nprocs=2, start_method="fork")
