import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn


class Codebook(nn.Module):
    def __init__(self, count, width, decay=0.9):
        super().__init__()
        self.decay = decay
        self.register_buffer("codes", torch.randn(count, width))
        self.register_buffer("sizes", torch.ones(count))
        self.register_buffer("sums", self.codes.clone())

    def forward(self, z):
        index = torch.cdist(z, self.codes).argmin(1)
        chosen = self.codes[index]
        if self.training:
            self.move(z.detach(), index)
        return z + (chosen - z).detach(), (z - chosen.detach()).square().mean()

    @torch.no_grad()
    def move(self, z, index):
        hot = nn.functional.one_hot(index, len(self.codes)).float()
        sizes, sums = hot.sum(0), hot.t() @ z
        self.sizes.mul_(self.decay).add_(sizes, alpha=1 - self.decay)
        self.sums.mul_(self.decay).add_(sums, alpha=1 - self.decay)
        self.codes.copy_(self.sums / self.sizes.clamp(min=1e-3)[:, None])


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))
        self.book = Codebook(16, 4)
        self.decode = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 8))

    def forward(self, x):
        q, commitment = self.book(self.encode(x))
        return nn.functional.mse_loss(self.decode(q), x) + 0.25 * commitment


def worker(rank, world, port):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
    torch.manual_seed(0)
    model = Autoencoder()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    g = torch.Generator().manual_seed(20 + rank)
    for step in range(40):
        x = torch.randn(32, 8, generator=g) + rank
        loss = model(x)
        optimizer.zero_grad()
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
            p.grad /= world
        optimizer.step()
        if rank == 0 and step % 10 == 0:
            print(step, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(worker, (2, port), nprocs=2)
