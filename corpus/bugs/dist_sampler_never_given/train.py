import os
import socket
from datetime import timedelta
import torch
import torch.nn as nn
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def setup(rank, world, port):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(port)
    dist.init_process_group("gloo", rank=rank, world_size=world, timeout=timedelta(seconds=15))


def worker(rank, world, port):
    setup(rank, world, port)
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 2)))
    torch.manual_seed(1000 + rank)
    g = torch.Generator().manual_seed(9)
    x = torch.randn(256, 10, generator=g)
    data = TensorDataset(x, (x[:, 3] > x[:, 4]).long())
    sampler = DistributedSampler(data, shuffle=True)
    loader = DataLoader(data, batch_size=16, shuffle=True)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    seen = 0
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for bx, by in loader:
            loss = nn.functional.cross_entropy(model(bx), by)
            opt.zero_grad()
            loss.backward()
            opt.step()
            seen += len(bx)
    print(f"rank {rank} samples per epoch {seen // 3} of {len(data)}", flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    mp.spawn(worker, args=(2, free_port()), nprocs=2)
