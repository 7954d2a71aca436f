import os
import socket
from datetime import timedelta
import torch
import torch.nn as nn
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP


def setup(rank, world, port):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(port)
    dist.init_process_group("gloo", rank=rank, world_size=world, timeout=timedelta(seconds=15))


def bfloat16_hook(state, bucket):
    small = bucket.buffer().div(dist.get_world_size()).to(torch.bfloat16)
    work = dist.all_reduce(small, async_op=True)

    def wide(future):
        return bucket.buffer().copy_(future.value()[0])

    return work.get_future().then(wide)


def worker(rank, world, port):
    setup(rank, world, port)
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(9, 40), nn.Tanh(), nn.Linear(40, 3)))
    model.register_comm_hook(None, bfloat16_hook)
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    g = torch.Generator().manual_seed(60 + rank)
    for step in range(30):
        x = torch.randn(24, 9, generator=g)
        y = x[:, :3].argmax(1)
        loss = nn.functional.cross_entropy(model(x), y)
        own = torch.autograd.grad(nn.functional.cross_entropy(model.module(x), y), model.module[0].weight)[0]
        opt.zero_grad()
        loss.backward()
        if step == 0:
            dist.all_reduce(own)
            print(f"rank {rank} ratio {(model.module[0].weight.grad.norm() / (own / world).norm()).item():.3f}", flush=True)
        opt.step()
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    mp.spawn(worker, args=(2, free_port()), nprocs=2)
