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
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world, timeout=timedelta(seconds=14))

from torch.nn.parallel import DistributedDataParallel as DDP


class Towers(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Sequential(nn.Linear(12, 48), nn.ReLU(), nn.Linear(48, 16))
        self.b = nn.Sequential(nn.Linear(12, 48), nn.ReLU(), nn.Linear(48, 16))

    def forward(self, x, y):
        return F.normalize(self.a(x), dim=-1), F.normalize(self.b(y), dim=-1)


def gather(t, rank, world):
    parts = [torch.zeros_like(t) for _ in range(world)]
    dist.all_gather(parts, t)
    parts[rank] = t
    return torch.cat(parts)


def main(rank, world, port):
    setup(rank, world, port)
    torch.manual_seed(0)
    model = DDP(Towers())
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    g = torch.Generator().manual_seed(50 + rank)
    for step in range(40):
        x = torch.randn(16, 12, generator=g)
        a, b = model(x, x + 0.1 * torch.randn(16, 12, generator=g))
        logits = 10 * a @ gather(b, rank, world).t()
        target = torch.arange(len(x))
        loss = F.cross_entropy(logits, target)
        opt.zero_grad()
        loss.backward()
        opt.step()
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    mp.start_processes(main, args=(2, free_port()), nprocs=2, start_method="fork")
