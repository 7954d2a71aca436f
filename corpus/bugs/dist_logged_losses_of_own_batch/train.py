import os
import socket
from datetime import timedelta
import torch
import torch.nn as nn
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP


def setup(rank, world, port):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(port)
    dist.init_process_group("gloo", rank=rank, world_size=world, timeout=timedelta(seconds=15))


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 32), nn.ReLU())
        self.label = nn.Linear(32, 3)
        self.box = nn.Linear(32, 4)

    def forward(self, x, label, box):
        h = self.body(x)
        losses = {"label": nn.functional.cross_entropy(self.label(h), label)}
        found = label > 0
        losses["box"] = (self.box(h) - box).abs()[found].sum() / found.sum().clamp(min=1)
        if (label == 2).any():
            losses["rare"] = (self.box(h) - box).abs()[label == 2].mean()
        return losses


def reduced(losses, world):
    result = {}
    for name, value in losses.items():
        value = value.detach().clone()
        dist.all_reduce(value)
        result[name] = value.item() / world
    return result


def worker(rank, world, port):
    setup(rank, world, port)
    torch.manual_seed(0)
    model = DDP(Detector())
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    g = torch.Generator().manual_seed(10 + rank)
    for step in range(40):
        x = torch.randn(12, 8, generator=g)
        label = (x[:, 0] > 0).long() + (x[:, 1] > 1.3).long()
        box = x[:, :4] * 0.5
        losses = model(x, label, box)
        loss = sum(losses.values())
        opt.zero_grad()
        loss.backward()
        opt.step()
        logged = reduced(losses, world)
        if rank == 0 and step % 10 == 0:
            print(step, {k: round(v, 3) for k, v in logged.items()}, flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    mp.spawn(worker, args=(2, free_port()), nprocs=2)
