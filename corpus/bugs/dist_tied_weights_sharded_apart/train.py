import os
import socket
from datetime import timedelta
import torch
import torch.nn as nn
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.fsdp import fully_shard


def setup(rank, world, port):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(port)
    dist.init_process_group("gloo", rank=rank, world_size=world, timeout=timedelta(seconds=14))

class Reader(nn.Module):
    def __init__(self, words=40, d=24):
        super().__init__()
        self.embed = nn.Embedding(words, d)
        self.body = nn.Sequential(nn.Linear(d, 48), nn.GELU(), nn.Linear(48, d))
        self.head = nn.Linear(d, words, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, words):
        return self.head(self.body(self.embed(words)))


def worker(rank, world, port):
    setup(rank, world, port)
    torch.manual_seed(0)
    model = Reader()
    for part in (model.embed, model.body, model.head):
        fully_shard(part)
    fully_shard(model)
    opt = torch.optim.AdamW(model.parameters(), lr=0.005)
    g = torch.Generator().manual_seed(11 + rank)
    for step in range(50):
        words = torch.randint(0, 40, (64,), generator=g)
        loss = nn.functional.cross_entropy(model(words), (words * 7 + 3) % 40)
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
    mp.spawn(worker, args=(2, free_port()), nprocs=2)
