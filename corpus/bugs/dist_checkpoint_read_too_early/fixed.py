import os
import socket
from datetime import timedelta
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
import torch.multiprocessing as mp
import tempfile
import time


def setup(rank, world, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(world))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world, timeout=timedelta(seconds=20))

def net():
    return nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 4))


def phase(model, opt, g, steps):
    for step in range(steps):
        x = torch.randn(16, 8, generator=g)
        loss = F.cross_entropy(model(x), x[:, :4].argmax(1))
        opt.zero_grad()
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()
        opt.step()
    return loss


def write(model, path):
    time.sleep(0.5)                       # a large model on a slow disk
    torch.save(model.state_dict(), path)


def main(rank, world, port, folder):
    setup(rank, world, port)
    torch.manual_seed(0)
    model = net()
    path = f"{folder}/best.pt"
    if rank == 0:
        write(model, path)
    dist.barrier()
    g = torch.Generator().manual_seed(60 + rank)
    phase(model, torch.optim.AdamW(model.parameters(), lr=5e-3), g, 15)
    if rank == 0:
        write(model, path)
    dist.barrier()
    model.load_state_dict(torch.load(path))
    loss = phase(model, torch.optim.AdamW(model.parameters(), lr=1e-3), g, 15)
    print(f"rank {rank} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.start_processes(main, args=(2, free_port(), folder), nprocs=2, start_method="fork")
