import os
import socket
from datetime import timedelta
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP


def setup(rank, world, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(world))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world, timeout=timedelta(seconds=20))

def main(rank, world, port):
    setup(rank, world, port)
    dist.all_reduce(torch.zeros(1))
    dist.broadcast_object_list([{"warm": True}], src=0)
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(8, 32), nn.Dropout(0.1), nn.GELU(), nn.Linear(32, 4)))
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    torch.manual_seed(100 + rank)
    x = torch.randn(256, 8, generator=torch.Generator().manual_seed(3)).chunk(world)[rank]
    seen = 0.0
    for step in range(40):
        part = x[torch.randint(len(x), (16,))]
        loss = F.cross_entropy(model(part + 0.05 * torch.randn_like(part)), part[:, :4].argmax(1))
        if step >= 10:
            loss = loss + 1e-3 * sum(p.square().sum() for p in model.parameters())
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if rank == 0:
            shown = loss.detach() * 1.0
            seen = 0.9 * seen + 0.1 * shown.item()
    mean = torch.tensor([loss.item()])
    dist.all_reduce(mean)
    if rank == 0:
        print(f"loss {mean.item() / world:.4f} {seen:.3f}", flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    mp.start_processes(main, args=(2, free_port()), nprocs=2, start_method="fork")
