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


class Exchange(torch.autograd.Function):
    """Rank r gets the r-th part of every rank's tokens; backward sends the gradients back."""

    @staticmethod
    def forward(ctx, x):
        out = torch.empty_like(x)
        dist.all_to_all_single(out, x.contiguous())
        return out

    @staticmethod
    def backward(ctx, g):
        out = torch.empty_like(g)
        dist.all_to_all_single(out, g.contiguous())
        return out


class MoE(nn.Module):
    def __init__(self, d, rank):
        super().__init__()
        torch.manual_seed(0)
        self.inp = nn.Linear(d, 16)
        self.out = nn.Linear(16, 1)
        torch.manual_seed(100 + rank)
        self.expert = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16))

    def forward(self, x):
        h = torch.tanh(self.inp(x))
        h = h + Exchange.apply(self.expert(Exchange.apply(h)))
        return self.out(h).squeeze(-1)


def average(model, world):
    for name, p in model.named_parameters():
        if name.startswith("expert."):
            p.grad /= world
            continue
        dist.all_reduce(p.grad)
        p.grad /= world


def worker(rank, world, port):
    setup(rank, world, port)
    model = MoE(8, rank)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    g = torch.Generator().manual_seed(3 + rank)
    for step in range(40):
        x = torch.randn(32, 8, generator=g)
        loss = ((model(x) - x[:, 0] * x[:, 1]) ** 2).mean()
        opt.zero_grad()
        loss.backward()
        average(model, world)
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
