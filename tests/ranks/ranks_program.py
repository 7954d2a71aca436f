"""A training of two ranks, which are forked and talk through gloo; `program` puts its body in."""

from __future__ import annotations

import textwrap

PROGRAM = """
import os, signal, sys
import torch
import torch.nn as nn
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset

def data(seed, n=96):
    x = torch.randn(n, 6, generator=torch.Generator().manual_seed(seed))
    return x, (x[:, 0] > 0).long()

def net():
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))

def average(model, world):
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= world

loss_of = nn.functional.cross_entropy
# torch 2.13 may wait for ever in the destructor of DistributedDataParallel, bare as well. It holds the GIL while it joins
# gloo's threads, and a thread that was not scheduled since the last collective still needs the GIL to drop its tensors.
kept = []

def worker(rank, world):
    torch.set_num_threads(1)
    # A file, not a port: another test could take a port between its choice and its use.
    dist.init_process_group("gloo", init_method=f"file://{os.getcwd()}/rendezvous", rank=rank, world_size=world)
    torch.manual_seed(0)
    x, y = data(10 + rank)
    #BODY
    with open(f"weights{rank}", "w") as file:
        file.write(" ".join(p.detach().double().abs().sum().item().hex() for p in model.parameters()))
    dist.destroy_process_group()
    kept.append(model)

if __name__ == "__main__":
    mp.start_processes(worker, args=(2,), nprocs=2, start_method="fork")
"""


def program(body: str) -> str:
    return PROGRAM.replace("    #BODY", textwrap.indent(body, "    "))
