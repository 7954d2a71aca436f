import os
import socket
from datetime import timedelta
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
import torch.multiprocessing as mp


def setup(rank, world, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(world))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world, timeout=timedelta(seconds=20))

def main(rank, world, port):
    setup(rank, world, port)
    torch.manual_seed(0)
    parts = 4
    g = torch.Generator().manual_seed(3)
    stage = nn.Sequential(nn.Linear(8, 64), nn.GELU()) if rank == 0 else nn.Sequential(nn.Linear(64, 4))
    opt = torch.optim.AdamW(stage.parameters(), lr=5e-3)
    buffers, works = [torch.empty(16, 64) for _ in range(2)], [None, None]
    for step in range(25):
        x = torch.randn(parts * 16, 8, generator=g)
        y = x[:, :4].argmax(1)
        opt.zero_grad()
        if rank == 0:
            outs = []
            for k, xb in enumerate(x.chunk(parts)):
                out = stage(xb)
                outs.append(out)
                if works[k % 2] is not None:
                    works[k % 2].wait()
                buffers[k % 2].copy_(out.detach())
                works[k % 2] = dist.isend(buffers[k % 2], 1)
            for out in outs:
                grad = torch.empty(16, 64)
                dist.recv(grad, 1)
                out.backward(grad)
        else:
            grads = []
            for yb in y.chunk(parts):
                h = torch.empty(16, 64)
                dist.recv(h, 0)
                h.requires_grad_()
                loss = F.cross_entropy(stage(h), yb) / parts
                loss.backward()
                grads.append(h.grad)
            for grad in grads:
                dist.send(grad, 0)
        opt.step()
    for work in works:
        if work is not None:
            work.wait()
    if rank == 1:
        print(f"loss {loss.item() * parts:.4f}", flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    mp.start_processes(main, args=(2, free_port()), nprocs=2, start_method="fork")
