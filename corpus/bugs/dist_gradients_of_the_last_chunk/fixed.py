import os
import subprocess
import sys

import torch
import torch.distributed as dist
from torch import nn

class Step:
    def __init__(self, model, chunks):
        self.model, self.chunks = model, chunks
        self.parameters = list(model.parameters())

    def __call__(self, x, y):
        total, sums = 0.0, [torch.zeros_like(p) for p in self.parameters]
        for part, target in zip(x.chunk(self.chunks), y.chunk(self.chunks)):
            loss = nn.functional.cross_entropy(self.model(part), target) / self.chunks
            for one, grad in zip(sums, torch.autograd.grad(loss, self.parameters)):
                one += grad
            total += loss.item()
        for p, grad in zip(self.parameters, sums):
            dist.all_reduce(grad)
            p.grad = grad / dist.get_world_size()
        return total


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    step = Step(model, 4)
    g = torch.Generator().manual_seed(rank)
    for k in range(30):
        x = torch.randn(64, 6, generator=g)
        loss = step(x, x[:, :3].argmax(1))
        optimizer.step()
        if rank == 0 and k % 10 == 0:
            print(k, loss)
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:
        main()
    else:
        command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "0", "--rdzv-backend", "c10d",
                   "--rdzv-endpoint", "localhost:0", __file__]
        sys.exit(subprocess.run(command).returncode)
