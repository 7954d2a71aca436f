import os
import socket
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn


def reduce_gradients(model):
    for p in model.parameters():
        if p.grad is not None:
            dist.all_reduce(p.grad)
            p.grad.div_(dist.get_world_size())


@torch.no_grad()
def accuracy(model, x, y):
    return (model(x).argmax(1) == y).float().mean()


def worker(rank, world, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world, timeout=timedelta(seconds=12))
    torch.manual_seed(0)
    body, head = nn.Sequential(nn.Linear(12, 32), nn.ReLU()), nn.Linear(32, 2)
    model = nn.Sequential(body, head)
    body.requires_grad_(False)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.05)
    g = torch.Generator().manual_seed(rank)
    x = torch.randn(256, 12, generator=g)
    y = (x[:, :3].sum(1) > 0).long()
    held_x, held_y = torch.randn(64, 12, generator=g), None
    held_y = (held_x[:, :3].sum(1) > 0).long()
    held_y[: 12 * rank] = 1 - held_y[: 12 * rank]
    frozen = True
    for epoch in range(8):
        for k in range(0, 256, 32):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[k : k + 32]), y[k : k + 32]).backward()
            reduce_gradients(model)
            optimizer.step()
        score = accuracy(model, held_x, held_y)
        if frozen and score > 0.7:
            body.requires_grad_(True)
            optimizer.add_param_group({"params": body.parameters(), "lr": 0.02})
            frozen = False
        print(f"rank {rank} epoch {epoch} score {score.item():.2f} frozen {frozen}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.start_processes(worker, (2, port), nprocs=2, start_method="fork")
