import contextlib
import os
import socket
import torch
import torch.nn as nn
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def setup(rank, world, port):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(port)
    dist.init_process_group("gloo", rank=rank, world_size=world)

class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.body = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Dropout(0.1), nn.Linear(2 * d, d))

    def forward(self, x):
        return x + self.body(self.norm(x))


def worker(rank, world, port):
    setup(rank, world, port)
    torch.manual_seed(1234)
    net = nn.Sequential(nn.Linear(10, 32), Block(32), Block(32), nn.Linear(32, 3))
    ddp = DDP(torch.compile(net, backend="aot_eager"), gradient_as_bucket_view=True)
    torch.manual_seed(1234 + rank)
    opt = torch.optim.AdamW(ddp.parameters(), lr=3e-3)
    warm = torch.optim.lr_scheduler.LambdaLR(opt, lambda step: min(1.0, (step + 1) / 5))
    x = torch.randn(1600, 10, generator=torch.Generator().manual_seed(9))
    data = TensorDataset(x, x[:, :3].argmax(1))
    sampler = DistributedSampler(data, world, rank, drop_last=True)
    loader = DataLoader(data, batch_size=16, sampler=sampler, drop_last=True)
    accumulate = 4
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for i, (inputs, targets) in enumerate(loader):
            last = (i + 1) % accumulate == 0 or i + 1 == len(loader)
            with contextlib.nullcontext() if last else ddp.no_sync():
                loss = nn.functional.cross_entropy(ddp(inputs), targets) / accumulate
                loss.backward()
            if last:
                nn.utils.clip_grad_norm_(ddp.parameters(), 1.0)
                opt.step()
                warm.step()
                opt.zero_grad(set_to_none=True)
    print(f"rank {rank} loss {accumulate * loss.item():.4f}", flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    mp.spawn(worker, args=(2, free_port()), nprocs=2)
