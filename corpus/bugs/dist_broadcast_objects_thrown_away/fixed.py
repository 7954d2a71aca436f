import os
import socket
from datetime import timedelta
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP


def setup(rank, world, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(world))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world, timeout=timedelta(seconds=20))

def share(n, rank, world):
    order = torch.randperm(n).tolist()
    sent = [order]
    dist.broadcast_object_list(sent, src=0)
    return sent[0][rank::world]


def main(rank, world, port):
    setup(rank, world, port)
    torch.manual_seed(rank)
    x = torch.randn(240, 8, generator=torch.Generator().manual_seed(3))
    y = x[:, :4].argmax(1)
    mine = torch.tensor(share(len(x), rank, world))
    model = DDP(nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 4)))
    opt = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for epoch in range(3):
        for part in mine.split(12):
            loss = F.cross_entropy(model(x[part]), y[part])
            opt.zero_grad()
            loss.backward()
            opt.step()
    print(f"rank {rank} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    mp.start_processes(main, args=(2, free_port()), nprocs=2, start_method="fork")
