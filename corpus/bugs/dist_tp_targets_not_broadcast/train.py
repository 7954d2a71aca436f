import os
import socket
from datetime import timedelta
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
import torch.multiprocessing as mp


def setup(rank, world, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(world))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world, timeout=timedelta(seconds=20))

class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        grad = grad.clone()
        dist.all_reduce(grad)
        return grad


class Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad


class Block(nn.Module):
    def __init__(self, width, hidden, rank, world):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        g = torch.Generator().manual_seed(7 + rank)
        self.up = nn.Parameter(torch.randn(hidden // world, width, generator=g) * 0.3)
        self.down = nn.Parameter(torch.randn(width, hidden // world, generator=g) * 0.3)
        self.head = nn.Linear(width, 3)

    def forward(self, x):
        h = torch.relu(Copy.apply(self.norm(x)) @ self.up.t())
        return self.head(x + Reduce.apply(h @ self.down.t()))


def batch(seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(24, 8, generator=g)
    return x, x[:, :3].argmax(1)


def main(rank, world, port):
    setup(rank, world, port)
    torch.manual_seed(0)
    model = Block(8, 32, rank, world)
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(30):
        x, y = batch(1000 * rank + step)
        dist.broadcast(x, src=0)
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"rank {rank} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    mp.start_processes(main, args=(2, free_port()), nprocs=2, start_method="fork")
