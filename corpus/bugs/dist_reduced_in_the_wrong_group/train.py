import os
import socket
from datetime import timedelta
import torch
import torch.nn as nn
import torch.distributed as dist
import torch.multiprocessing as mp


def setup(rank, world, port):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(port)
    dist.init_process_group("gloo", rank=rank, world_size=world, timeout=timedelta(seconds=15))


class Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class Half(nn.Module):
    """Half of the hidden units of a network."""

    def __init__(self, part, group):
        super().__init__()
        g = torch.Generator().manual_seed(90 + part)
        self.up = nn.Parameter(torch.randn(16, 8, generator=g) * 0.3)
        self.down = nn.Parameter(torch.randn(1, 16, generator=g) * 0.3)
        self.group = group

    def forward(self, x):
        return Sum.apply(torch.tanh(x @ self.up.t()) @ self.down.t(), self.group)


def worker(rank, world, port):
    setup(rank, world, port)
    parts = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    replicas = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    part, copy = rank % 2, rank // 2
    model = Half(part, parts[copy])
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    g = torch.Generator().manual_seed(50 + copy)
    for step in range(25):
        x = torch.randn(16, 8, generator=g)
        loss = (model(x) - x[:, :1].sin()).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad, group=parts[copy])
            p.grad /= 2
        opt.step()
    w = [torch.empty_like(model.up) for _ in range(world)]
    dist.all_gather(w, model.up.detach())
    print(f"rank {rank} drift {(w[part] - w[part + 2]).abs().max().item():.3e}", flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    mp.spawn(worker, args=(4, free_port()), nprocs=4)
