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



def main(rank, world, port):
    setup(rank, world, port)
    torch.manual_seed(0)
    stages = nn.ModuleList([nn.Sequential(nn.Linear(8, 32), nn.ReLU()), nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 3))])
    stage = stages[rank]
    opt = torch.optim.SGD(stage.parameters(), lr=0.1)
    g = torch.Generator().manual_seed(7)
    micro = 4
    for step in range(30):
        x = torch.randn(32, 8, generator=g)
        y = x[:, :3].argmax(1)
        xs, ys = x.chunk(micro), y.chunk(micro)
        opt.zero_grad()
        if rank == 0:
            outs = []
            for xb in xs:
                out = stage(xb)
                dist.send(out.detach(), 1)
                outs.append(out)
            for out in reversed(outs):
                grad = torch.empty_like(out)
                dist.recv(grad, 1)
                out.backward(grad)
        else:
            kept = []
            for yb in ys:
                inp = torch.empty(8, 32)
                dist.recv(inp, 0)
                inp.requires_grad_()
                kept.append((inp, F.cross_entropy(stage(inp), yb) / micro))
            for inp, loss in reversed(kept):
                loss.backward()
                dist.send(inp.grad, 0)
        opt.step()
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    mp.spawn(main, args=(2, free_port()), nprocs=2)
