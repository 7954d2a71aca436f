import os
import socket
from datetime import timedelta
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
import torch.multiprocessing as mp


def setup(rank, world, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(world))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world, timeout=timedelta(seconds=20))

def pack(params):
    return torch.cat([p.grad.flatten() for p in params])


def unpack(flat, params):
    at = 0
    for p in params:
        p.grad.copy_(flat[at : at + p.numel()].view_as(p))
        at += p.numel()


def main(rank, world, port):
    setup(rank, world, port)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 16), nn.GELU(), nn.Linear(16, 16), nn.GELU(), nn.Linear(16, 4))
    decay = [p for p in model.parameters() if p.ndim > 1]
    rest = [p for p in model.parameters() if p.ndim == 1]
    opt = torch.optim.AdamW([{"params": decay, "weight_decay": 0.01}, {"params": rest, "weight_decay": 0.0}], lr=5e-3)
    g = torch.Generator().manual_seed(60 + rank)
    for step in range(40):
        x = torch.randn(16, 16, generator=g)
        loss = F.cross_entropy(model(x), x[:, :4].argmax(1))
        opt.zero_grad()
        loss.backward()
        flat = pack(list(model.parameters()))
        dist.all_reduce(flat)
        unpack(flat / world, decay + rest)
        opt.step()
    print(f"rank {rank} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    mp.start_processes(main, args=(2, free_port()), nprocs=2, start_method="fork")
