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

from torch.nn.parallel import DistributedDataParallel as DDP


class Clip(nn.Module):
    def __init__(self):
        super().__init__()
        self.image = nn.Sequential(nn.Linear(24, 48), nn.ReLU(), nn.Linear(48, 16))
        self.text = nn.Sequential(nn.Linear(12, 48), nn.ReLU(), nn.Linear(48, 16))
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, a, b):
        return F.normalize(self.image(a), dim=-1), F.normalize(self.text(b), dim=-1), self.scale.exp()


def gather(t, world):
    parts = [torch.zeros_like(t) for _ in range(world)]
    dist.all_gather(parts, t)
    return torch.cat(list(parts))


def main(rank, world, port):
    setup(rank, world, port)
    torch.manual_seed(0)
    model = DDP(Clip())
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    g = torch.Generator().manual_seed(100 + rank)
    mix = torch.randn(12, 24, generator=torch.Generator().manual_seed(1))
    for step in range(30):
        b = torch.randn(16, 12, generator=g)
        a = b @ mix + 0.1 * torch.randn(16, 24, generator=g)
        img, txt, scale = model(a, b)
        all_img, all_txt = gather(img, world), gather(txt, world)
        target = torch.arange(16) + 16 * rank
        loss = F.cross_entropy(scale * img @ all_txt.t(), target) + F.cross_entropy(scale * txt @ all_img.t(), target)
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
