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

def average(model, world):
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= world


def main(rank, world, port):
    setup(rank, world, port)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 1))
    opt = torch.optim.SGD(model.parameters(), lr=0.02)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14, growth_interval=1000)
    g = torch.Generator().manual_seed(60 + rank)
    for step in range(30):
        x = torch.randn(16, 8, generator=g)
        y = x[:, :1] * 2
        if step == 9 and rank == 1:
            x[3] *= 20000                 # a record out of scale
        with torch.autocast("cpu", dtype=torch.float16):
            loss = F.mse_loss(model(x).float(), y)
        opt.zero_grad()
        scaler.scale(loss).backward()
        average(model, world)
        scaler.unscale_(opt)
        scaler.step(opt)
        scaler.update()
    print(f"rank {rank} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    mp.start_processes(main, args=(2, free_port()), nprocs=2, start_method="fork")
