import os
import socket
from datetime import timedelta
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
import torch.multiprocessing as mp
import random
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset


def setup(rank, world, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(world))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world, timeout=timedelta(seconds=20))

class Stream(IterableDataset):
    def __init__(self, records, rank, world):
        self.records, self.rank, self.world = records, rank, world

    def __iter__(self):
        order = list(range(len(self.records)))
        random.shuffle(order)
        for i, k in enumerate(order):
            if i % self.world == self.rank:
                yield self.records[k], self.records[k][:4].argmax()


def main(rank, world, port):
    setup(rank, world, port)
    torch.manual_seed(0)
    records = torch.randn(240, 8, generator=torch.Generator().manual_seed(3))
    random.seed(0)
    loader = DataLoader(Stream(records, rank, world), batch_size=12)
    model = DDP(nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 4)))
    opt = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for epoch in range(4):
        for x, y in loader:
            loss = F.cross_entropy(model(x), y)
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
