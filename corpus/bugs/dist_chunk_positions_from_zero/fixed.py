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

from torch.nn.parallel import DistributedDataParallel as DDP


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(30, 16)
        self.pos = nn.Embedding(16, 16)
        self.mlp = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 30))

    def forward(self, ids, start):
        n = ids.shape[1]
        where = torch.arange(n) + start
        return self.mlp(self.tok(ids) + self.pos(where))


def main(rank, world, port):
    setup(rank, world, port)
    torch.manual_seed(0)
    model = DDP(Net())
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    g = torch.Generator().manual_seed(8)
    for step in range(40):
        ids = torch.randint(0, 30, (8, 16), generator=g)
        target = (ids + torch.arange(16)) % 30
        part = 16 // world
        mine = slice(rank * part, rank * part + part)
        loss = F.cross_entropy(model(ids[:, mine], rank * part).flatten(0, 1), target[:, mine].flatten())
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
