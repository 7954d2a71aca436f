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


def worker(rank, world, port):
    setup(rank, world, port)
    torch.manual_seed(0)
    model = net()
    opt = torch.optim.Adam(model.parameters(), lr=0.01)
    x, y = data(10 + rank)
    for epoch in range(3):
        for start in range(0, 128, 16):
            loss = nn.functional.cross_entropy(model(x[start : start + 16]), y[start : start + 16])
            opt.zero_grad()
            loss.backward()
            flat = torch.cat([p.grad.reshape(-1) for p in model.parameters()])
            dist.all_reduce(flat, op=dist.ReduceOp.SUM)
            flat /= world
            at = 0
            for p in model.parameters():
                p.grad.copy_(flat[at : at + p.numel()].view_as(p))
                at += p.numel()
            opt.step()
        losses = [torch.zeros(1) for _ in range(world)]
        dist.all_gather(losses, loss.detach().reshape(1))
        if rank == 0:
            print(f"epoch {epoch} {[round(v.item(), 4) for v in losses]}", flush=True)
            torch.save(model.state_dict(), "last.pt")
        dist.barrier()
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    mp.start_processes(worker, args=(2, free_port()), nprocs=2, start_method="fork")
