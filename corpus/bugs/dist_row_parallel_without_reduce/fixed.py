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



class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        g = g.clone()
        dist.all_reduce(g)
        return g


class Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, g):
        return g


class Attention(nn.Module):
    def __init__(self, d, heads, rank, world):
        super().__init__()
        self.heads = heads // world
        k = d // world
        qkv = torch.randn(3, d, d) / d**0.5
        out = torch.randn(d, d) / d**0.5
        self.qkv = nn.Parameter(qkv[:, rank * k : rank * k + k].reshape(3 * k, d).clone())
        self.out = nn.Parameter(out[:, rank * k : rank * k + k].clone())

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = F.linear(Copy.apply(x), self.qkv).chunk(3, -1)
        q, k, v = (z.view(b, t, self.heads, -1).transpose(1, 2) for z in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, -1)
        return Reduce.apply(F.linear(y, self.out))


class Model(nn.Module):
    def __init__(self, rank, world):
        super().__init__()
        self.emb = nn.Embedding(20, 16)
        self.norm = nn.LayerNorm(16)
        self.attn = Attention(16, 4, rank, world)
        self.head = nn.Linear(16, 20)

    def forward(self, x):
        x = self.emb(x)
        x = x + self.attn(self.norm(x))
        return self.head(x)


def main(rank, world, port):
    setup(rank, world, port)
    torch.manual_seed(0)
    model = Model(rank, world)
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
    g = torch.Generator().manual_seed(3)
    for step in range(40):
        start = torch.randint(0, 20, (8, 1), generator=g)
        seq = (start + torch.arange(9) * 3) % 20
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
    mp.spawn(main, args=(2, free_port()), nprocs=2)
