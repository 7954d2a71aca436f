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


def around(block, rank, world):
    """The blocks of all ranks, one hop at a time."""
    blocks = [block]
    after = (rank + 1) % world
    before = (rank - 1) % world
    for _ in range(world - 1):
        sending = dist.isend(blocks[-1].contiguous(), after)
        received = torch.empty_like(block)
        dist.recv(received, before)
        sending.wait()
        blocks.append(received)
    return blocks


class Attention(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.q, self.k, self.out = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, 1)

    def forward(self, x, rank, world):
        keys = torch.cat(around(self.k(x).detach(), rank, world))
        weights = torch.softmax(self.q(x) @ keys.t() / 4, -1)
        return self.out(weights @ keys)


def worker(rank, world, port):
    setup(rank, world, port)
    torch.manual_seed(0)
    model = Attention(16)
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    g = torch.Generator().manual_seed(30 + rank)
    for step in range(20):
        x = torch.randn(8, 16, generator=g)
        loss = (model(x, rank, world) - x.mean(1, keepdim=True)).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        for p in model.parameters():
            if p.grad is None:
                p.grad = torch.zeros_like(p)
            dist.all_reduce(p.grad)
            p.grad /= world
        opt.step()
    print(f"rank {rank} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    mp.spawn(worker, args=(3, free_port()), nprocs=3)
