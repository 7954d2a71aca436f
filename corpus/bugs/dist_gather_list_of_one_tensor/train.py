import os
import socket
from datetime import timedelta
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP


def setup(rank, world, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(world))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world, timeout=timedelta(seconds=20))

class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(12, 48), nn.GELU(), nn.Linear(48, 16))

    def forward(self, x):
        return F.normalize(self.body(x), dim=1)


def gather(z):
    world = dist.get_world_size()
    parts = [torch.empty_like(z)] * world
    dist.all_gather(parts, z.detach())
    parts = list(parts)
    parts[dist.get_rank()] = z
    return torch.cat(parts)


def main(rank, world, port):
    setup(rank, world, port)
    torch.manual_seed(0)
    model = DDP(Encoder())
    opt = torch.optim.AdamW(model.parameters(), lr=5e-3)
    g = torch.Generator().manual_seed(60 + rank)
    for step in range(30):
        base = torch.randn(16, 12, generator=g)
        one = base + 0.1 * torch.randn(16, 12, generator=g)
        two = base + 0.1 * torch.randn(16, 12, generator=g)
        a, b = model(torch.cat([one, two])).chunk(2)
        logits = gather(a)[rank * 16 : rank * 16 + 16] @ gather(b).t() / 0.2
        loss = F.cross_entropy(logits, torch.arange(16) + 16 * rank)
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
