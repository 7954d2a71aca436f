import os
import socket
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn


def average(parameters):
    for p in parameters:
        dist.all_reduce(p.grad, op=dist.ReduceOp.SUM)
        p.grad.div_(dist.get_world_size())


def solve(rank, world, port):
    torch.set_num_threads(1)
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", str(port)
    dist.init_process_group("gloo", rank=rank, world_size=world, timeout=timedelta(seconds=12))
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(1, 20), nn.Tanh(), nn.Linear(20, 1))
    x = torch.linspace(-2, 2, 128).view(-1, 1)[rank::world]
    y = torch.sin(3 * x) + 0.5 * rank
    optimizer = torch.optim.LBFGS(net.parameters(), lr=1.0, max_iter=8, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        loss = (net(x) - y).square().mean()
        loss.backward()
        average(net.parameters())
        return loss

    for step in range(10):
        loss = optimizer.step(closure)
        if rank == 0:
            print(step, float(loss))
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(solve, args=(2, port), nprocs=2)
