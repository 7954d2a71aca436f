import os
import socket
from datetime import timedelta
import torch
import torch.nn as nn
import torch.distributed as dist
import torch.multiprocessing as mp
import contextlib
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def setup(rank, world, port):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(port)
    dist.init_process_group("gloo", rank=rank, world_size=world, timeout=timedelta(seconds=15))


def worker(rank, world, port):
    setup(rank, world, port)
    torch.manual_seed(0)
    g = torch.Generator().manual_seed(8)
    x = torch.randn(352, 10, generator=g)
    data = TensorDataset(x, (x[:, :2].sum(1) > 0).long())
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=16, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 2)))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    every = 4
    for epoch in range(4):
        sampler.set_epoch(epoch)
        for i, (bx, by) in enumerate(loader):
            last = i + 1 == len(loader)
            sync = last or (i + 1) % every == 0
            with contextlib.nullcontext() if sync else model.no_sync():
                loss = nn.functional.cross_entropy(model(bx), by) / every
                loss.backward()
            if sync or last:
                opt.step()
                opt.zero_grad()
    w = model.module[0].weight.detach().clone()
    dist.broadcast(w, 0)
    print(f"rank {rank} drift {(w - model.module[0].weight).abs().max().item():.3e}", flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    mp.spawn(worker, args=(2, free_port()), nprocs=2)
