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


class Weighted(nn.Module):
    """Weights of two tasks, learned (Kendall et al.)."""

    def __init__(self):
        super().__init__()
        self.log_var = nn.Parameter(torch.zeros(2))

    def forward(self, a, b):
        losses = torch.stack([a, b])
        return (losses * torch.exp(-self.log_var) + self.log_var).sum()


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 24), nn.ReLU())
        self.value = nn.Linear(24, 1)
        self.kind = nn.Linear(24, 3)

    def forward(self, x):
        h = self.body(x)
        return self.value(h).squeeze(1), self.kind(h)


def worker(rank, world, port):
    setup(rank, world, port)
    torch.manual_seed(0)
    model = DDP(TwoHeads())
    criterion = DDP(Weighted())
    opt = torch.optim.Adam([*model.parameters(), *criterion.parameters()], lr=0.01)
    g = torch.Generator().manual_seed(3 + rank)
    for step in range(30):
        x = torch.randn(32, 8, generator=g)
        value, kind = model(x)
        a = nn.functional.mse_loss(value, x[:, 0] * x[:, 1])
        b = nn.functional.cross_entropy(kind, x[:, :3].argmax(1))
        loss = criterion(a, b)
        opt.zero_grad()
        loss.backward()
        opt.step()
    inner = criterion.module if hasattr(criterion, "module") else criterion
    print(f"rank {rank} log_var {inner.log_var.tolist()}", flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    mp.spawn(worker, args=(2, free_port()), nprocs=2)
