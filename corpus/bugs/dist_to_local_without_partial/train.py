import os
import socket
from datetime import timedelta
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Partial, Replicate, distribute_tensor


def setup(rank, world, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(world))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world, timeout=timedelta(seconds=20))

def average(p):
    dist.all_reduce(p.grad)
    p.grad /= dist.get_world_size()


class Scaled(nn.Module):
    def __init__(self, width, mesh):
        super().__init__()
        self.weight = nn.Parameter(distribute_tensor(torch.ones(width), mesh, [Replicate()]))
        self.shift = nn.Parameter(distribute_tensor(torch.zeros(width), mesh, [Replicate()]))

    def forward(self, x):
        return x * self.weight.to_local() + self.shift.to_local()


def main(rank, world, port):
    setup(rank, world, port)
    torch.manual_seed(0)
    mesh = init_device_mesh("cpu", (world,))
    model = nn.Sequential(nn.Linear(8, 24), nn.GELU(), Scaled(24, mesh), nn.Linear(24, 3))
    for p in (*model[0].parameters(), *model[3].parameters()):
        p.register_post_accumulate_grad_hook(average)
    opt = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    g = torch.Generator().manual_seed(60 + rank)
    for step in range(30):
        x = torch.randn(16, 8, generator=g)
        loss = F.cross_entropy(model(x), x[:, :3].argmax(1))
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"rank {rank} loss {loss.item():.4f} {model[2].weight.to_local().sum().item():.6f}", flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    mp.start_processes(main, args=(2, free_port()), nprocs=2, start_method="fork")
