import os
import socket
from datetime import timedelta
import torch
import torch.nn as nn
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.swa_utils import AveragedModel, update_bn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def setup(rank, world, port):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(port)
    dist.init_process_group("gloo", rank=rank, world_size=world, timeout=timedelta(seconds=14))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 32)
        self.norm = nn.BatchNorm1d(32)
        self.last = nn.Linear(32, 3)

    def forward(self, x):
        return self.last(torch.relu(self.norm(self.first(x))))


def labelled(n, seed):
    x = torch.randn(n, 8, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(x, x[:, :3].argmax(1))


def worker(rank, world, port):
    setup(rank, world, port)
    torch.manual_seed(0)
    ddp = DDP(Net())
    data, held_out = labelled(512, 1), labelled(128, 2)
    sampler = DistributedSampler(data, world, rank)
    loader = DataLoader(data, batch_size=32, sampler=sampler)
    opt = torch.optim.SGD(ddp.parameters(), lr=0.1, momentum=0.9)
    averaged = AveragedModel(ddp.module)
    for epoch in range(5):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = nn.functional.cross_entropy(ddp(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        averaged.update_parameters(ddp.module)
    update_bn(loader, averaged)
    averaged.eval()
    share = DataLoader(held_out, batch_size=32, sampler=DistributedSampler(held_out, world, rank, shuffle=False))
    with torch.no_grad():
        hits = sum((averaged(x).argmax(1) == y).sum() for x, y in share)
    dist.all_reduce(hits)
    print(f"rank {rank} accuracy {hits.item() / len(held_out):.3f}", flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    mp.spawn(worker, args=(2, free_port()), nprocs=2)
