import os
import socket
from datetime import timedelta
import torch
import torch.nn as nn
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.nn.parallel import DistributedDataParallel as DDP


def setup(rank, world, port):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(port)
    dist.init_process_group("gloo", rank=rank, world_size=world, timeout=timedelta(seconds=14))

def train(ddp, opt, rank, steps, seed):
    g = torch.Generator().manual_seed(seed + rank)
    for step in range(steps):
        x = torch.randn(32, 8, generator=g)
        loss = nn.functional.mse_loss(ddp(x), x.flip(1).cumsum(1)[:, :4])
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss


def build():
    torch.manual_seed(0)
    ddp = DDP(nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 4)))
    return ddp, torch.optim.AdamW(ddp.parameters(), lr=0.01)


def worker(rank, world, port):
    setup(rank, world, port)
    ddp, opt = build()
    train(ddp, opt, rank, 40, 3)
    dcp.save({"model": ddp.state_dict(), "optimizer": opt.state_dict()}, checkpoint_id="checkpoint")

    ddp, opt = build()
    state = {"model": ddp.state_dict(), "optimizer": opt.state_dict()}
    dcp.load(state, checkpoint_id="checkpoint")
    ddp.load_state_dict(state["model"])
    loss = train(ddp, opt, rank, 40, 300)
    print(f"rank {rank} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    mp.spawn(worker, args=(2, free_port()), nprocs=2)
