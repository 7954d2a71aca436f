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

def main(rank, world, port):
    setup(rank, world, port)
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 4)))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    g = torch.Generator().manual_seed(60 + rank)
    for step in range(30):
        x = torch.randn(16, 8, generator=g)
        loss = F.cross_entropy(model(x), x[:, :4].argmax(1))
        if rank == 0:
            penalty = sum(p.square().sum() for p in model.parameters())
            loss = loss + 0.01 * penalty
            if step % 10 == 0:
                print(f"step {step} loss {loss.item():.4f} penalty {penalty.item():.3f}", flush=True)
        opt.zero_grad()
        loss.backward()
        opt.step()
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    mp.start_processes(main, args=(2, free_port()), nprocs=2, start_method="fork")
