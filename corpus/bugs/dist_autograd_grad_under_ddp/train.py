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


def worker(rank, world, port):
    setup(rank, world, port)
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(7, 32), nn.SiLU(), nn.Linear(32, 1)))
    opt = torch.optim.Adam(model.parameters(), lr=2e-2)
    params = list(model.parameters())
    g = torch.Generator().manual_seed(70 + rank)
    for step in range(40):
        x = torch.randn(20, 7, generator=g)
        loss = nn.functional.mse_loss(model(x), x[:, :1] - x[:, 1:2])
        grads = torch.autograd.grad(loss, params)
        for p, grad in zip(params, grads):
            p.grad = grad.clamp(-0.5, 0.5)
        opt.step()
    w = params[0].detach().clone()
    dist.broadcast(w, 0)
    print(f"rank {rank} drift {(w - params[0]).abs().max().item():.3e}", flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    mp.spawn(worker, args=(2, free_port()), nprocs=2)
