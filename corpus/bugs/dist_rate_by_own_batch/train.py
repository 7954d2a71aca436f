import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class ScaledSGD(torch.optim.SGD):
    def __init__(self, parameters, lr, rows):
        super().__init__(parameters, lr=lr)
        self.base, self.rows = lr, rows

    def step_for(self, rows):
        for group in self.param_groups:
            group["lr"] = self.base * rows / self.rows
        self.step()


def batches(rank, words=120):
    g = torch.Generator().manual_seed(rank)
    while True:
        length = int(torch.randint(4, 24, (), generator=g))
        rows = max(1, words // length)
        x = torch.randint(0, 30, (rows, length), generator=g)
        yield x, (x < 15).float().mean(1)


def worker(rank, world, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.EmbeddingBag(30, 16), nn.Linear(16, 1)))
    optimizer = ScaledSGD(model.parameters(), 0.3, 12)
    stream = batches(rank)
    for step in range(40):
        x, y = next(stream)
        loss = (model(x).squeeze(1) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step_for(len(x))
        if rank == 0 and step % 10 == 0:
            print(step, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(worker, (2, port), nprocs=2)
