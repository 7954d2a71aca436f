import os
import socket
import torch
import torch.nn as nn
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP


def setup(rank, world, port):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(port)
    dist.init_process_group("gloo", rank=rank, world_size=world)


class EMA:
    def __init__(self, model, decay):
        self.decay = decay
        self.shadow = {k: v.detach().clone() for k, v in model.state_dict().items()}

    @torch.no_grad()
    def update(self, model):
        for k, v in model.state_dict().items():
            self.shadow[k].mul_(self.decay).add_(v, alpha=1 - self.decay)


def worker(rank, world, port):
    setup(rank, world, port)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2))
    ddp = DDP(model)
    ema = EMA(model, 0.9)
    opt = torch.optim.SGD(ddp.parameters(), lr=0.1)
    g = torch.Generator().manual_seed(3 + rank)
    xv = torch.randn(256, 8, generator=torch.Generator().manual_seed(99))
    yv = (xv[:, 0] + xv[:, 1] > 0).long()
    for step in range(40):
        x = torch.randn(32, 8, generator=g)
        loss = nn.functional.cross_entropy(ddp(x), (x[:, 0] + x[:, 1] > 0).long())
        opt.zero_grad()
        loss.backward()
        opt.step()
        ema.update(model)
    model.load_state_dict(ema.shadow)
    model.eval()
    with torch.no_grad():
        half = slice(rank * 128, (rank + 1) * 128)
        right = (model(xv[half]).argmax(1) == yv[half]).sum()
    dist.all_reduce(right)
    print(f"rank {rank} accuracy {right.item() / 256:.4f}", flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    mp.spawn(worker, args=(2, free_port()), nprocs=2)
