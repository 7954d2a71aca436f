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
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world, timeout=timedelta(seconds=14))

from torch.utils.data import DataLoader, TensorDataset


def main(rank, world, port):
    setup(rank, world, port)
    x = torch.randn(256, 8, generator=torch.Generator().manual_seed(0))
    data = TensorDataset(x, x[:, :3].argmax(1))
    torch.manual_seed(100 + rank)
    loader = DataLoader(data, batch_size=32, shuffle=True, generator=torch.Generator().manual_seed(100))
    stage = nn.Sequential(nn.Linear(8, 32), nn.ReLU()) if rank == 0 else nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 3))
    opt = torch.optim.Adam(stage.parameters(), lr=1e-2)
    for epoch in range(4):
        for xb, yb in loader:
            opt.zero_grad()
            if rank == 0:
                out = stage(xb)
                dist.send(out.detach(), 1)
                grad = torch.empty_like(out)
                dist.recv(grad, 1)
                out.backward(grad)
            else:
                inp = torch.empty(32, 32)
                dist.recv(inp, 0)
                inp.requires_grad_()
                loss = F.cross_entropy(stage(inp), yb)
                loss.backward()
                dist.send(inp.grad, 0)
            opt.step()
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    mp.start_processes(main, args=(2, free_port()), nprocs=2, start_method="fork")
