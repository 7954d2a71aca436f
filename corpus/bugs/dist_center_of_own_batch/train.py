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


class DistillLoss(nn.Module):
    def __init__(self, n_out, world):
        super().__init__()
        self.world = world
        self.register_buffer("center", torch.zeros(1, n_out))

    def forward(self, student, teacher):
        target = torch.softmax((teacher - self.center) / 0.1, dim=-1).detach()
        loss = -(target * torch.log_softmax(student / 0.2, dim=-1)).sum(-1).mean()
        self.update_center(teacher)
        return loss

    @torch.no_grad()
    def update_center(self, teacher):
        batch = teacher.mean(0, keepdim=True)
        self.center.mul_(0.9).add_(batch, alpha=0.1)


def worker(rank, world, port):
    setup(rank, world, port)
    torch.manual_seed(0)
    student = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 12))
    teacher = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 12))
    teacher.load_state_dict(student.state_dict())
    for p in teacher.parameters():
        p.requires_grad_(False)
    ddp = DDP(student)
    loss_fn = DistillLoss(12, world)
    opt = torch.optim.AdamW(ddp.parameters(), lr=0.003)
    g = torch.Generator().manual_seed(3 + rank)
    for step in range(30):
        x = torch.randn(32, 8, generator=g) + rank
        a, b = x + 0.1 * torch.randn(32, 8, generator=g), x + 0.1 * torch.randn(32, 8, generator=g)
        with torch.no_grad():
            t = teacher(a)
        loss = loss_fn(ddp(b), t)
        opt.zero_grad()
        loss.backward()
        opt.step()
        with torch.no_grad():
            for p, q in zip(teacher.parameters(), student.parameters()):
                p.mul_(0.99).add_(q, alpha=0.01)
        if step % 10 == 0:
            print(f"rank {rank} step {step} loss {loss.item():.4f} center {loss_fn.center.norm().item():.5f}", flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    mp.spawn(worker, args=(2, free_port()), nprocs=2)
