import os
import socket
from datetime import timedelta
import torch
import torch.nn as nn
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


def setup(rank, world, port):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(port)
    dist.init_process_group("gloo", rank=rank, world_size=world, timeout=timedelta(seconds=14))

class Attention(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads, self.wide = heads, d // heads
        self.q, self.k, self.v = (nn.Linear(d, d) for _ in range(3))
        self.out = nn.Linear(d, d)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (part(x).view(b, t, -1, self.wide).transpose(1, 2) for part in (self.q, self.k, self.v))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(b, t, -1))


class Block(nn.Module):
    def __init__(self, d=32, heads=4):
        super().__init__()
        self.attend = Attention(d, heads)
        self.head = nn.Linear(d, 5)

    def forward(self, x):
        return self.head(x + self.attend(x))


def worker(rank, world, port):
    setup(rank, world, port)
    mesh = init_device_mesh("cpu", (world,))
    torch.manual_seed(0)
    model = Block()
    plan = {name: ColwiseParallel() for name in ("attend.q", "attend.k", "attend.v")}
    parallelize_module(model, mesh, {**plan, "attend.out": RowwiseParallel()})
    opt = torch.optim.Adam(model.parameters(), lr=0.01)
    g = torch.Generator().manual_seed(1)
    for step in range(20):
        x = torch.randn(8, 6, 32, generator=g)
        loss = nn.functional.cross_entropy(model(x).flatten(0, 1), x[..., :5].argmax(-1).flatten())
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
