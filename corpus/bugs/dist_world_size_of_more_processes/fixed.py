import os
import socket
from datetime import timedelta
import torch
import torch.nn as nn
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP


CONFIG = {"nodes": 1, "devices": 2, "lr": 0.1, "steps": 20}


def setup(local_rank, port):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(port)
    world = CONFIG["nodes"] * CONFIG["devices"]
    dist.init_process_group("gloo", rank=local_rank, world_size=world, timeout=timedelta(seconds=14))


def worker(local_rank, port):
    setup(local_rank, port)
    torch.manual_seed(0)
    ddp = DDP(nn.Linear(8, 3))
    opt = torch.optim.SGD(ddp.parameters(), lr=CONFIG["lr"])
    g = torch.Generator().manual_seed(5 + local_rank)
    for step in range(CONFIG["steps"]):
        x = torch.randn(16, 8, generator=g)
        loss = nn.functional.cross_entropy(ddp(x), x[:, :3].argmax(1))
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"rank {local_rank} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    mp.spawn(worker, args=(free_port(),), nprocs=CONFIG["devices"])
