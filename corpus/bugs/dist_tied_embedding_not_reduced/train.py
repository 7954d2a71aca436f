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


class First(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 16)
        self.mix = nn.Linear(16, 16)

    def forward(self, ids):
        return torch.tanh(self.mix(self.embed(ids)))


class Last(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 16)
        self.norm = nn.LayerNorm(16)

    def forward(self, h):
        return self.norm(h) @ self.embed.weight.t()


def worker(rank, world, meet):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=meet, rank=rank, world_size=world, timeout=timedelta(seconds=14))
    torch.manual_seed(rank)
    model = First() if rank == 0 else Last()
    dist.broadcast(model.embed.weight.data, src=0)
    opt = torch.optim.Adam(model.parameters(), lr=0.01)
    ids = torch.randint(0, 20, (240, 8), generator=torch.Generator().manual_seed(3))
    for step in range(24):
        batch = ids[step * 10 : step * 10 + 10]
        opt.zero_grad()
        if rank == 0:
            h = model(batch)
            dist.send(h.detach(), dst=1)
            back = torch.empty_like(h)
            dist.recv(back, src=1)
            h.backward(back)
        else:
            h = torch.empty(10, 8, 16)
            dist.recv(h, src=0)
            h.requires_grad_()
            loss = F.cross_entropy(model(h).flatten(0, 1), ((batch * 3 + 1) % 20).flatten())
            loss.backward()
            dist.send(h.grad, dst=0)
        opt.step()
    kept.append(model)
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.start_processes(worker, args=(2, f"file://{folder}/meet"), nprocs=2, start_method="fork")
