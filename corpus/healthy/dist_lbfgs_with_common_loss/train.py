import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn


def worker(rank, world, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(1, 20), nn.Tanh(), nn.Linear(20, 1))
    x = torch.linspace(-2, 2, 128).view(-1, 1)[rank::world]
    y = torch.sin(3 * x)
    optimizer = torch.optim.LBFGS(net.parameters(), max_iter=8, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        loss = (net(x) - y).square().mean()
        loss.backward()
        flat = torch.cat([loss.detach().view(1), *(p.grad.flatten() for p in net.parameters())])
        dist.all_reduce(flat)
        flat /= world
        at = 1
        for p in net.parameters():
            p.grad.copy_(flat[at : at + p.numel()].view_as(p))
            at += p.numel()
        return flat[0]

    for step in range(8):
        loss = optimizer.step(closure)
        if rank == 0:
            print(step, float(loss))
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(worker, (2, port), nprocs=2)
