import os
import tempfile
from datetime import timedelta
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
import torch.multiprocessing as mp


def worker(rank, world, meet):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=meet, rank=rank, world_size=world, timeout=timedelta(seconds=14))
    torch.manual_seed(5 + rank)
    width, micro = 24, 3
    if rank == 0:
        stage = nn.Sequential(nn.Linear(10, width), nn.Tanh(), nn.Linear(width, width))
    else:
        stage = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 4))
    opt = torch.optim.SGD(stage.parameters(), lr=0.1, momentum=0.9)
    g = torch.Generator().manual_seed(9)
    for step in range(30):
        opt.zero_grad()
        x = torch.randn(micro, 8, 10, generator=g)
        y = x[..., :4].argmax(-1)
        if rank == 0:
            sent = [stage(part) for part in x]
            for out in sent:
                dist.send(out.detach(), 1)
            for out in sent:
                grad = torch.empty_like(out)
                dist.recv(grad, 1)
                out.backward(grad)
        else:
            pairs = []
            for k in range(micro):
                buffer = torch.zeros(8, width)
                dist.recv(buffer, 0)
                hidden = buffer.detach().requires_grad_()
                pairs.append((hidden, F.cross_entropy(stage(hidden), y[k]) / micro))
            for hidden, loss in pairs:
                loss.backward()
                dist.send(hidden.grad, 0)
        opt.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.start_processes(worker, args=(2, f"file://{folder}/meet"), nprocs=2, start_method="fork")

