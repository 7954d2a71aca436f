import os
import socket
import torch
import torch.nn as nn
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP


def setup(rank, world, port):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(port)
    dist.init_process_group("gloo", rank=rank, world_size=world)


import torch.distributed.nn.functional as dist_fn


class CopyToTP(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        g = g.clone()
        dist.all_reduce(g)
        return g


class ReduceFromTP(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, g):
        return g


class TPMLP(nn.Module):
    def __init__(self, d, hidden, rank, world):
        super().__init__()
        g = torch.Generator().manual_seed(50 + rank)
        self.up = nn.Parameter(torch.randn(hidden // world, d, generator=g) * 0.3)
        self.down = nn.Parameter(torch.randn(d, hidden // world, generator=g) * 0.3)

    def forward(self, x):
        h = torch.relu(CopyToTP.apply(x) @ self.up.t())
        return ReduceFromTP.apply(h @ self.down.t())


def worker(rank, world, port):
    setup(rank, world, port)
    model = TPMLP(8, 64, rank, world)
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    g = torch.Generator().manual_seed(1)
    for step in range(40):
        x = torch.randn(32, 8, generator=g)
        loss = ((model(x) - x.flip(1)) ** 2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if rank == 0 and step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    mp.spawn(worker, args=(2, free_port()), nprocs=2)
