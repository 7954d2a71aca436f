"""Each rank makes as many local steps as it has data; the weights are averaged by the number of samples."""
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn


@torch.no_grad()
def average(model, count):
    total = torch.tensor(float(count))
    dist.all_reduce(total)
    for p in model.parameters():
        p.mul_(count / total)
        dist.all_reduce(p)


def worker(rank, world, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 3))
    g = torch.Generator().manual_seed(rank)
    x = torch.randn(160 + 96 * rank, 6, generator=g)
    y = x[:, :3].argmax(1)
    for round_ in range(6):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for part, target in zip(x.split(32), y.split(32)):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(part), target)
            loss.backward()
            optimizer.step()
        average(model, len(x))
        if rank == 0:
            print(f"round {round_} loss {loss.item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(worker, (2, port), nprocs=2)
