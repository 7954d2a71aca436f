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


def show(x, y):
    for i in torch.randint(len(x), (3,)).tolist():
        print("example", x[i, :2].tolist(), y[i].item(), flush=True)


def worker(rank, world, port):
    setup(rank, world, port)
    torch.manual_seed(0)
    x = torch.randn(512, 8)
    y = (x[:, 0] + x[:, 1] > 0).long()
    ddp = DDP(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2)))
    opt = torch.optim.SGD(ddp.parameters(), lr=0.1)
    if rank == 0:
        show(x, y)
    for epoch in range(3):
        order = torch.randperm(len(x))[rank::world]
        for part in order.split(16):
            loss = nn.functional.cross_entropy(ddp(x[part]), y[part])
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
