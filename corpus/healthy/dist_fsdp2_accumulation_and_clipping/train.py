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
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.device_mesh import init_device_mesh

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 32), nn.GELU(), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 2))
    model[0].requires_grad_(False)
    mesh = init_device_mesh("cpu", (world,))
    fully_shard(model[2], mesh=mesh)
    fully_shard(model, mesh=mesh)
    opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.01)
    x, y = data(10 + rank, 512)
    for step in range(20):
        opt.zero_grad()
        for part in range(2):
            model.set_requires_gradient_sync(part == 1)
            idx = torch.arange(step * 32 + part * 16, step * 32 + part * 16 + 16) % len(x)
            (F.cross_entropy(model(x[idx]), y[idx]) / 2).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        opt.step()
        if step % 10 == 9:
            model.eval()
            with torch.no_grad():
                right = (model(x).argmax(1) == y).float().mean()
            dist.all_reduce(right)
            model.train()
    kept.append(model)
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.start_processes(worker, args=(2, f"file://{folder}/meet"), nprocs=2, start_method="fork")
