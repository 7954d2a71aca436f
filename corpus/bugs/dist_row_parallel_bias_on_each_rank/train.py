import os
import socket
from datetime import timedelta
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
import torch.multiprocessing as mp


def setup(rank, world, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank))
    dist.init_process_group("gloo", rank=rank, world_size=world, timeout=timedelta(seconds=14))



class Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, g):
        return g


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        g = g.clone()
        dist.all_reduce(g)
        return g


class RowParallel(nn.Module):
    def __init__(self, n, m, full):
        super().__init__()
        self.weight = nn.Parameter(full)
        self.bias = nn.Parameter(torch.zeros(m))

    def forward(self, x):
        return Reduce.apply(F.linear(x, self.weight, self.bias))


class Block(nn.Module):
    def __init__(self, d, rank, world):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        h = 4 * d // world
        up = torch.randn(4 * d, d) / d**0.5
        down = torch.randn(d, 4 * d) / (4 * d) ** 0.5
        self.up = nn.Linear(d, h, bias=False)
        self.up.weight.data.copy_(up[rank * h : rank * h + h])
        self.down = RowParallel(h, d, down[:, rank * h : rank * h + h].clone())

    def forward(self, x):
        return x + self.down(F.gelu(self.up(Copy.apply(self.norm(x)))))


def main(rank, world, port):
    setup(rank, world, port)
    torch.manual_seed(0)
    model = nn.Sequential(Block(16, rank, world), Block(16, rank, world), nn.Linear(16, 4))
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
    g = torch.Generator().manual_seed(3)
    for step in range(40):
        x = torch.randn(32, 16, generator=g)
        loss = F.cross_entropy(model(x), x[:, :4].argmax(1))
        opt.zero_grad()
        loss.backward()
        opt.step()
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    mp.spawn(main, args=(2, free_port()), nprocs=2)
