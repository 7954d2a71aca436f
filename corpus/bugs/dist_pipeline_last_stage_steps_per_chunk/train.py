import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

CHUNKS, ROWS = 4, 8


def first_stage(net, optimizer, data):
    for step in range(25):
        x, _ = data()
        outputs = []
        for part in x.chunk(CHUNKS):
            out = net(part)
            dist.send(out.detach(), 1)
            outputs.append(out)
        optimizer.zero_grad()
        for out in outputs:
            grad = torch.empty_like(out)
            dist.recv(grad, 1)
            out.backward(grad)
        optimizer.step()


def last_stage(net, optimizer, data):
    for step in range(25):
        _, y = data()
        received = []
        for _ in range(CHUNKS):
            hidden = torch.empty(ROWS, 24)
            dist.recv(hidden, 0)
            received.append(hidden.requires_grad_())
        optimizer.zero_grad()
        for hidden, target in zip(received, y.chunk(CHUNKS)):
            loss = nn.functional.mse_loss(net(hidden), target) / CHUNKS
            loss.backward()
            dist.send(hidden.grad, 0)
            optimizer.step()
            optimizer.zero_grad()
        if step % 8 == 0:
            print(step, loss.item() * CHUNKS)


def worker(rank, world, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.manual_seed(rank)
    net = nn.Sequential(nn.Linear(6, 24), nn.Tanh()) if rank == 0 else nn.Sequential(nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 1))
    g = torch.Generator().manual_seed(4)

    def data():
        x = torch.randn(CHUNKS * ROWS, 6, generator=g)
        return x, (x[:, :1] * x[:, 1:2]).sin()

    optimizer = torch.optim.SGD(net.parameters(), lr=0.2)
    (first_stage if rank == 0 else last_stage)(net, optimizer, data)
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(worker, (2, port), nprocs=2)
