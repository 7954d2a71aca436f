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
    model = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 2))
    ddp = DDP(model, broadcast_buffers=False)
    opt = torch.optim.SGD(ddp.parameters(), lr=0.1)
    g = torch.Generator().manual_seed(3 + rank)
    xv = torch.randn(256, 8, generator=torch.Generator().manual_seed(99)) + 1
    for epoch in range(3):
        ddp.train()
        for step in range(10):
            x = torch.randn(32, 8, generator=g) + 1
            loss = nn.functional.cross_entropy(ddp(x), (x[:, 0] > 1).long())
            opt.zero_grad()
            loss.backward()
            opt.step()
        for buffer in (model[1].running_mean, model[1].running_var):
            dist.all_reduce(buffer)
            buffer /= world
        ddp.eval()
        with torch.no_grad():
            accuracy = (model(xv).argmax(1) == (xv[:, 0] > 1).long()).float().mean()
        if rank == 0:
            print(f"epoch {epoch} loss {loss.item():.4f} accuracy {accuracy.item():.4f}", flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    mp.spawn(worker, args=(2, free_port()), nprocs=2)
