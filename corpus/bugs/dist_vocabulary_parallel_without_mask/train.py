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



class Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, g):
        return g


class ParallelEmbedding(nn.Module):
    def __init__(self, n, d, rank, world):
        super().__init__()
        whole = torch.randn(n, d) * 0.1
        self.first, self.size = rank * n // world, n // world
        self.weight = nn.Parameter(whole[self.first : self.first + self.size].clone())

    def forward(self, ids):
        own = ids - self.first
        outside = (own < 0) | (own >= self.size)
        x = F.embedding(own.clamp(0, self.size - 1), self.weight)
        x = x.float()
        return Reduce.apply(x)


class Net(nn.Module):
    def __init__(self, rank, world):
        super().__init__()
        self.emb = ParallelEmbedding(24, 16, rank, world)
        self.rnn = nn.GRU(16, 32, batch_first=True)
        self.head = nn.Linear(32, 24)

    def forward(self, x):
        return self.head(self.rnn(self.emb(x))[0])


def main(rank, world, port):
    setup(rank, world, port)
    torch.manual_seed(0)
    model = Net(rank, world)
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    g = torch.Generator().manual_seed(3)
    for step in range(40):
        seq = (torch.randint(0, 24, (8, 1), generator=g) + torch.arange(9) * 5) % 24
        loss = F.cross_entropy(model(seq[:, :-1]).flatten(0, 1), seq[:, 1:].flatten())
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
