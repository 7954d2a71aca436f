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

def load(rank, world):
    g = torch.Generator().manual_seed(3)
    x = torch.randn(400, 8, generator=g)
    y = x[:, :5].argmax(1).sort(descending=True).values
    return x.chunk(world)[rank], y.chunk(world)[rank]


def main(rank, world, port):
    setup(rank, world, port)
    torch.manual_seed(0)
    x, y = load(rank, world)
    top = y.max()
    dist.all_reduce(top, op=dist.ReduceOp.MAX)
    classes = int(top) + 1
    model = DDP(nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, classes)))
    opt = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for step in range(30):
        part = torch.arange(step * 16, step * 16 + 16) % len(x)
        loss = F.cross_entropy(model(x[part]), y[part])
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
