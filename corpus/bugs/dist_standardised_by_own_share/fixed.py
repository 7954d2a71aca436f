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


def worker(rank, world, port):
    setup(rank, world, port)
    torch.manual_seed(0)
    whole = torch.randn(512, 8, generator=torch.Generator().manual_seed(1)) * 3 + torch.linspace(0, 8, 512)[:, None]
    y = (whole[:, 0] > 4).long()
    x, y = whole[rank * 256:(rank + 1) * 256], y[rank * 256:(rank + 1) * 256]
    mean, std = whole.mean(0), whole.std(0)
    x = (x - mean) / std
    model = DDP(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2)))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(3):
        for part in torch.arange(256).split(16):
            loss = nn.functional.cross_entropy(model(x[part]), y[part])
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
    mp.spawn(worker, args=(2, free_port()), nprocs=2)
