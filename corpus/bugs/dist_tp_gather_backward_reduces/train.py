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


class GatherFromTP(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, x.contiguous())
        return torch.cat(parts, dim=-1)

    @staticmethod
    def backward(ctx, g):
        g = g.clone()
        dist.all_reduce(g)
        n = g.shape[-1] // dist.get_world_size()
        return g[..., dist.get_rank() * n:(dist.get_rank() + 1) * n].contiguous()


class ColumnParallel(nn.Module):
    def __init__(self, n_in, n_out, rank, world):
        super().__init__()
        g = torch.Generator().manual_seed(7)
        whole = torch.randn(n_out, n_in, generator=g) / n_in ** 0.5
        self.weight = nn.Parameter(whole.chunk(world)[rank].clone())

    def forward(self, x):
        return GatherFromTP.apply(x @ self.weight.t())


class Net(nn.Module):
    def __init__(self, rank, world):
        super().__init__()
        self.first = ColumnParallel(8, 32, rank, world)
        self.last = nn.Linear(32, 1)

    def forward(self, x):
        return self.last(torch.relu(self.first(x))).squeeze(-1)


def worker(rank, world, port):
    setup(rank, world, port)
    torch.manual_seed(0)
    model = Net(rank, world)
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    g = torch.Generator().manual_seed(1)
    for step in range(40):
        x = torch.randn(32, 8, generator=g)
        loss = ((model(x) - x[:, 0] * x[:, 1]) ** 2).mean()
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
