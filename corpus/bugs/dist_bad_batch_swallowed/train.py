import os
import socket
from datetime import timedelta
import torch
import torch.nn as nn
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP


def setup(rank, world, port):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(port)
    dist.init_process_group("gloo", rank=rank, world_size=world, timeout=timedelta(seconds=15))


def collate(rows):
    if any(len(row[0]) != 10 for row in rows):
        raise ValueError("broken sample")
    return torch.stack([row[0] for row in rows]), torch.tensor([row[1] for row in rows])


def samples(rank):
    g = torch.Generator().manual_seed(3)
    x = torch.randn(400, 10, generator=g)
    rows = [(r, int(r[0] > 0)) for r in x][rank::2]
    if rank == 1:
        rows[77] = (rows[77][0][:4], rows[77][1])
    return rows


def worker(rank, world, port):
    setup(rank, world, port)
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(10, 32), nn.GELU(), nn.Linear(32, 2)))
    opt = torch.optim.AdamW(model.parameters(), lr=1e-2)
    rows = samples(rank)
    for epoch in range(2):
        for i in range(0, len(rows), 10):
            try:
                x, y = collate(rows[i : i + 10])
                opt.zero_grad()
                loss = nn.functional.cross_entropy(model(x), y)
                loss.backward()
                opt.step()
            except ValueError:
                continue
        if rank == 0:
            print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    mp.spawn(worker, args=(2, free_port()), nprocs=2)
