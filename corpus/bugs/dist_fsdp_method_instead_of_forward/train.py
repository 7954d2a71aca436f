import os
import socket
from datetime import timedelta
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method


def setup(rank, world, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(world))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world, timeout=timedelta(seconds=20))

class TwoTowers(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Sequential(nn.Linear(12, 32), nn.GELU(), nn.Linear(32, 16))
        self.key = nn.Sequential(nn.Linear(12, 32), nn.GELU(), nn.Linear(32, 16))

    def encode(self, x):
        return F.normalize(self.query(x), dim=1)

    def forward(self, x):
        return F.normalize(self.key(x), dim=1)


def main(rank, world, port):
    setup(rank, world, port)
    torch.manual_seed(0)
    model = TwoTowers()
    fully_shard(model, mesh=init_device_mesh("cpu", (world,)))
    opt = torch.optim.AdamW(model.parameters(), lr=5e-3)
    g = torch.Generator().manual_seed(60 + rank)
    for step in range(30):
        x = torch.randn(16, 12, generator=g)
        queries = model.encode(x)
        keys = model(x + 0.1 * torch.randn(16, 12, generator=g))
        loss = F.cross_entropy(queries @ keys.t() / 0.2, torch.arange(16))
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
