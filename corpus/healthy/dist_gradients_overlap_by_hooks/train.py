import copy
import os
import socket
import torch
import torch.nn as nn
import torch.distributed as dist
import torch.multiprocessing as mp


def setup(rank, world, port):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(port)
    dist.init_process_group("gloo", rank=rank, world_size=world)

class Averager:
    def __init__(self, model, world):
        self.world, self.under_way = world, []
        for p in model.parameters():
            dist.broadcast(p.data, src=0)
            p.register_post_accumulate_grad_hook(self.begin)

    def begin(self, p):
        self.under_way.append((dist.all_reduce(p.grad, async_op=True), p))

    def finish(self):
        for work, p in self.under_way:
            work.wait()
            p.grad.div_(self.world)
        self.under_way.clear()


def worker(rank, world, port):
    setup(rank, world, port)
    torch.manual_seed(rank)
    model = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    averager = Averager(model, world)
    average = copy.deepcopy(model).requires_grad_(False)
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    x = torch.randn(2048, 12, generator=torch.Generator().manual_seed(5))
    y = (x[:, :6] * x[:, 6:]).sum(1, keepdim=True)
    mine = torch.arange(rank, len(x), world)
    for epoch in range(4):
        order = mine[torch.randperm(len(mine), generator=torch.Generator().manual_seed(epoch))]
        for rows in order.split(64):
            loss = nn.functional.mse_loss(model(x[rows]), y[rows])
            opt.zero_grad()
            loss.backward()
            averager.finish()
            opt.step()
            with torch.no_grad():
                for kept, p in zip(average.parameters(), model.parameters()):
                    kept.lerp_(p, 0.05)
        shown = loss.detach().clone()
        report = dist.all_reduce(shown, async_op=True)
        with torch.no_grad():
            held = nn.functional.mse_loss(average(x[:256]), y[:256])
        report.wait()
        if rank == 0:
            print(f"epoch {epoch} loss {shown.item() / world:.4f} average {held.item():.4f}", flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    mp.spawn(worker, args=(2, free_port()), nprocs=2)
