import os
import socket
import torch
import torch.nn as nn
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP


def setup(rank, world, port):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(port)
    dist.init_process_group("gloo", rank=rank, world_size=world)


import random
import tempfile


def write(folder):
    g = torch.Generator().manual_seed(1)
    for k in range(32):
        x = torch.randn(16, 8, generator=g)
        torch.save((x, (x[:, 0] > 0).long()), os.path.join(folder, f"part{k:02d}.pt"))


def worker(rank, world, port, folder):
    setup(rank, world, port)
    torch.manual_seed(0)
    random.seed(7)
    files = sorted(os.listdir(folder))
    random.shuffle(files)
    mine = files[rank::world]
    model = DDP(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2)))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(3):
        for name in mine:
            x, y = torch.load(os.path.join(folder, name))
            loss = nn.functional.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        if rank == 0:
            print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        write(folder)
        mp.spawn(worker, args=(2, free_port(), folder), nprocs=2)
