import os
import socket
from datetime import timedelta
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler


def setup(rank, world, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(world))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world, timeout=timedelta(seconds=20))

def main(rank, world, port):
    setup(rank, world, port)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 4))
    opt = torch.optim.AdamW(model.parameters(), lr=5e-3)
    x = torch.randn(128, 8, generator=torch.Generator().manual_seed(3))
    data = TensorDataset(x, x[:, :4].argmax(1))
    weights = torch.rand(128, generator=torch.Generator().manual_seed(4)) + 0.2
    own = torch.Generator().manual_seed(50 + rank)
    loader = DataLoader(data, batch_size=8, sampler=WeightedRandomSampler(weights, 128, generator=own))
    params = list(model.parameters())
    for epoch in range(2):
        for xb, yb in loader:
            loss = F.cross_entropy(model(xb), yb)
            opt.zero_grad()
            loss.backward()
            flat = torch.cat([p.grad.flatten() for p in reversed(params)])
            dist.all_reduce(flat)
            at = 0
            for p in reversed(params):
                p.grad = (flat[at : at + p.numel()] / world).view_as(p).clone()
                at += p.numel()
            for p in params:
                torch.nn.utils.clip_grad_norm_([p], 0.05)
            opt.step()
    print(f"rank {rank} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    mp.start_processes(main, args=(2, free_port()), nprocs=2, start_method="fork")
