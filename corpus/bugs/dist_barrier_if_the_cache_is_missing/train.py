import os
import socket
from datetime import timedelta
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
import torch.multiprocessing as mp


def setup(rank, world, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world, timeout=timedelta(seconds=14))

import time
from torch.nn.parallel import DistributedDataParallel as DDP


def load(rank, path):
    if not os.path.exists(path):
        if rank == 0:
            torch.save(torch.randn(128, 6), path)
        dist.barrier()
    return torch.load(path)


def main(rank, world, port):
    setup(rank, world, port)
    torch.manual_seed(0)
    model = DDP(nn.Linear(6, 1))
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    for part in range(3):
        time.sleep(0.5 * rank)
        x = load(rank, f"part{part}.pt")[rank * 64 : rank * 64 + 64]
        for i in range(0, 64, 16):
            loss = F.mse_loss(model(x[i : i + 16]), x[i : i + 16].sum(1, keepdim=True))
            opt.zero_grad()
            loss.backward()
            opt.step()
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    mp.start_processes(main, args=(2, free_port()), nprocs=2, start_method="fork")
