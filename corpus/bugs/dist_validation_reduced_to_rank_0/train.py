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

from torch.nn.parallel import DistributedDataParallel as DDP


def evaluate(model, x, y, world):
    model.eval()
    with torch.no_grad():
        loss = F.mse_loss(model(x), y)
    dist.reduce(loss, dst=0)
    model.train()
    return loss.item() / world


def main(rank, world, port):
    setup(rank, world, port)
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1)))
    opt = torch.optim.Adam(model.parameters(), lr=3e-2)
    g = torch.Generator().manual_seed(5 + rank)
    x = torch.randn(160, 8, generator=g)
    y = x[:, :1] * 2 + 0.5 * torch.randn(160, 1, generator=g)
    best = float("inf")
    for epoch in range(8):
        for i in range(0, 128, 16):
            loss = F.mse_loss(model(x[i : i + 16]), y[i : i + 16])
            opt.zero_grad()
            loss.backward()
            opt.step()
        val = evaluate(model.module, x[128:], y[128:], world)
        if val < best:
            best = val
            norm = torch.stack([p.norm() for p in model.parameters()])
            dist.broadcast(norm, 0)
            if rank == 0:
                torch.save(model.module.state_dict(), "best.pt")
            dist.barrier()
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    mp.spawn(main, args=(2, free_port()), nprocs=2)
