import os
import socket
import torch
import torch.nn as nn
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def setup(rank, world, port):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(port)
    dist.init_process_group("gloo", rank=rank, world_size=world)


def net():
    return nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 2))


def data(seed, n=256):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 6, generator=g)
    return x, (x[:, 0] + x[:, 1] > 0).long()


def worker(rank, world, port):
    setup(rank, world, port)
    torch.manual_seed(rank)
    set_ = TensorDataset(*data(3))
    sampler = DistributedSampler(set_)
    loader = DataLoader(set_, batch_size=16, sampler=sampler)
    model = nn.Sequential(nn.Linear(6, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 2))
    ddp = DDP(model)
    opt = torch.optim.AdamW(ddp.parameters(), lr=0.01)
    xv, yv = data(99)
    for epoch in range(4):
        sampler.set_epoch(epoch)
        ddp.train()
        for xb, yb in loader:
            loss = nn.functional.cross_entropy(ddp(xb), yb)
            opt.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(ddp.parameters(), 1.0)
            opt.step()
        ddp.eval()
        with torch.no_grad():
            correct = (ddp(xv).argmax(1) == yv).float().mean()
        dist.all_reduce(correct)
        if rank == 0:
            print(f"epoch {epoch} accuracy {correct.item() / world:.3f}", flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    mp.spawn(worker, args=(2, free_port()), nprocs=2)
