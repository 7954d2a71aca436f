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
    front = nn.Sequential(nn.Linear(8, 256), nn.GELU())
    back = nn.Linear(256, 4)
    opt = torch.optim.AdamW((front if rank == 0 else back).parameters(), lr=5e-3)
    sent = torch.empty(64, 256)
    for step in range(25):
        x = torch.randn(parts * 64, 8, generator=g)
        y = x[:, :4].argmax(1)
        opt.zero_grad()
        if rank == 0:
            outs, works = [], []
            for xb in x.chunk(parts):
                out = front(xb)
                outs.append(out)
                sent.copy_(out.detach())
                works.append(dist.isend(sent, 1))
            for work in works:
                work.wait()
            for out in outs:
                grad = torch.empty(64, 256)
                dist.recv(grad, 1)
                out.backward(grad)
        else:
            grads = []
            for yb in y.chunk(parts):
                h = torch.empty(64, 256)
                dist.recv(h, 0)
                h.requires_grad_()
                loss = F.cross_entropy(back(h), yb) / parts
                loss.backward()
                grads.append(h.grad)
            for grad in grads:
                dist.send(grad, 0)
        opt.step()
    if rank == 1:
        print(f"loss {loss.item() * parts:.4f}", flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    mp.start_processes(main, args=(2, free_port()), nprocs=2, start_method="fork")
