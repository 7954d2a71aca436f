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
    dist.init_process_group("gloo", rank=rank, world_size=world, timeout=timedelta(seconds=14))

from torch.nn.parallel import DistributedDataParallel as DDP


def main(rank, world, port):
    setup(rank, world, port)
    torch.manual_seed(0)
    gen = DDP(nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2)))
    dis = DDP(nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1)))
    og = torch.optim.Adam(gen.parameters(), lr=1e-3, betas=(0.5, 0.999))
    od = torch.optim.Adam(dis.parameters(), lr=1e-3, betas=(0.5, 0.999))
    torch.manual_seed(100 + rank)
    for step in range(60):
        real = torch.randn(32, 2) * torch.tensor([1.0, 0.3]) + 1
        fake = gen(torch.randn(32, 4))
        scores = dis(torch.cat([real, fake.detach()]))
        ld = F.binary_cross_entropy_with_logits(scores, torch.cat([torch.ones(32, 1), torch.zeros(32, 1)]))
        od.zero_grad()
        ld.backward()
        od.step()
        dis.requires_grad_(False)
        lg = F.binary_cross_entropy_with_logits(dis(fake), torch.ones(32, 1))
        og.zero_grad()
        lg.backward()
        og.step()
        dis.requires_grad_(True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    mp.spawn(main, args=(2, free_port()), nprocs=2)
