import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn


class Sharded:
    """Each rank keeps the optimizer state of its part of the parameters."""

    def __init__(self, model, lr):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.all = list(model.parameters())
        self.owner = [k % self.world for k in range(len(self.all))]
        self.optimizer = torch.optim.Adam([p for p, o in zip(self.all, self.owner) if o == self.rank], lr=lr)

    def reduce(self):
        for k, p in enumerate(self.all):
            dist.reduce(p.grad, dst=(k + 1) % self.world)
            p.grad /= self.world

    def step(self):
        self.reduce()
        self.optimizer.step()
        for p, owner in zip(self.all, self.owner):
            dist.broadcast(p.data, src=owner)
        for p in self.all:
            p.grad = None


def run(rank, world, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.manual_seed(11)
    net = nn.Sequential(nn.Linear(8, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 3))
    sharded = Sharded(net, 2e-3)
    g = torch.Generator().manual_seed(rank)
    for step in range(40):
        x = torch.randn(32, 8, generator=g)
        y = (x[:, 0] > 0).long() + (x[:, 1] > 0).long()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        sharded.step()
        if rank == 0 and step % 10 == 9:
            print(f"{step + 1}: {loss.item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        free = s.getsockname()[1]
    mp.start_processes(run, args=(2, free), nprocs=2, start_method="fork")
