import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


@torch.no_grad()
def f1(model, x, y):
    said = model(x).squeeze(1) > 0
    hits, found, there = (said & y).sum(), said.sum(), y.sum()
    score = 2 * hits / (found + there).clamp(min=1)
    dist.all_reduce(score)
    return score / dist.get_world_size()


def worker(rank, world, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 32), nn.ReLU(), nn.Linear(32, 1))
    ddp = DDP(net)
    optimizer = torch.optim.Adam(ddp.parameters(), 1e-2)
    g = torch.Generator().manual_seed(0)
    x = torch.randn(512, 5, generator=g)
    y = x[:, 0] + 0.3 * x[:, 1] > 0.9
    order = y.float().argsort(stable=True)  # the held-out part is sorted by class
    x_train, y_train, x_held, y_held = x[rank::world], y[rank::world], x[order].chunk(world)[rank], y[order].chunk(world)[rank]
    for epoch in range(5):
        for k in range(0, len(x_train), 32):
            loss = nn.functional.binary_cross_entropy_with_logits(ddp(x_train[k : k + 32]).squeeze(1), y_train[k : k + 32].float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        score = f1(net, x_held, y_held)
        if rank == 0:
            print(f"epoch {epoch} F1 {score.item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(worker, (2, port), nprocs=2)
