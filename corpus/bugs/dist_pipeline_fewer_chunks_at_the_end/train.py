import os
import socket
from datetime import timedelta
import torch
import torch.nn as nn
import torch.distributed as dist
import torch.multiprocessing as mp


def setup(rank, world, port):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(port)
    dist.init_process_group("gloo", rank=rank, world_size=world, timeout=timedelta(seconds=15))


SIZE, CHUNKS = 8, 4


def dataset():
    g = torch.Generator().manual_seed(1)
    x = torch.randn(208, 12, generator=g)
    return x, x[:, :3].sum(1, keepdim=True)


def first_stage(stage, x, rank):
    sent = []
    for part in x.split(SIZE):
        out = stage(part)
        dist.send(out.detach(), 1)
        sent.append(out)
    for out in sent:
        grad = torch.empty_like(out)
        dist.recv(grad, 1)
        out.backward(grad)


def last_stage(stage, y, rank):
    total, held = 0.0, []
    for k in range(CHUNKS):
        h = torch.empty(SIZE, 24)
        dist.recv(h, 0)
        h.requires_grad_()
        loss = (stage(h) - y[k * SIZE : (k + 1) * SIZE]).pow(2).mean() / CHUNKS
        loss.backward()
        held.append(h.grad)
        total += loss.item()
    for grad in held:
        dist.send(grad, 0)
    return total


def worker(rank, world, port):
    setup(rank, world, port)
    torch.manual_seed(rank)
    stage = nn.Sequential(nn.Linear(12, 24), nn.Tanh()) if rank == 0 else nn.Sequential(nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 1))
    opt = torch.optim.SGD(stage.parameters(), lr=0.1)
    x, y = dataset()
    for epoch in range(2):
        for i in range(0, len(x), SIZE * CHUNKS):
            opt.zero_grad()
            if rank == 0:
                first_stage(stage, x[i : i + SIZE * CHUNKS], rank)
            else:
                total = last_stage(stage, y[i : i + SIZE * CHUNKS], rank)
            opt.step()
        if rank == 1:
            print(f"epoch {epoch} loss {total:.4f}", flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    mp.spawn(worker, args=(2, free_port()), nprocs=2)
