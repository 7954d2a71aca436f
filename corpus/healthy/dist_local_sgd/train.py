import os
import socket
import torch
import torch.nn as nn
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def setup(rank, world, port):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(port)
    dist.init_process_group("gloo", rank=rank, world_size=world)


def net():
    return nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 2))


def data(seed, n=256):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 6, generator=g)
    return x, (x[:, 0] + x[:, 1] > 0).long()


def worker(rank, world, port):
    setup(rank, world, port)
    torch.manual_seed(0)
    model = net()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = data(10 + rank, 512)
    g = torch.Generator().manual_seed(rank)
    for step in range(40):
        idx = torch.randint(len(x), (16,), generator=g)
        loss = nn.functional.cross_entropy(model(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 8 == 7:
            with torch.no_grad():
                for p in model.parameters():
                    dist.all_reduce(p)
                    p /= world
    print(f"rank {rank} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    mp.spawn(worker, args=(2, free_port()), nprocs=2)
