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


from datetime import timedelta


def worker(rank, world, port):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(port)
    dist.init_process_group("gloo", rank=rank, world_size=world, timeout=timedelta(seconds=20))
    torch.manual_seed(rank)
    stage = nn.Sequential(nn.Linear(8, 16), nn.Tanh()) if rank == 0 else nn.Linear(16, 2)
    opt = torch.optim.SGD(stage.parameters(), lr=0.1)
    g = torch.Generator().manual_seed(3)
    for step in range(20):
        x = torch.randn(32, 8, generator=g)
        opt.zero_grad()
        if rank == 0:
            h = stage(x)
            dist.send(h.detach(), dst=1, tag=step)
            grad = torch.empty(32, 16)
            dist.recv(grad, src=1, tag=step)
            h.backward(grad)
        else:
            h = torch.empty(32, 16)
            dist.recv(h, src=0, tag=step + 1)
            h.requires_grad_()
            loss = nn.functional.cross_entropy(stage(h), (x[:, 0] > 0).long())
            loss.backward()
            dist.send(h.grad, dst=0, tag=step)
            if step % 5 == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
        opt.step()
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    mp.spawn(worker, args=(2, free_port()), nprocs=2)
