import os
import subprocess
import sys

import torch
import torch.distributed as dist
from torch import nn

torch.set_num_threads(1)


class Compressor:
    def __init__(self, parameters, share=0.25):
        self.parameters = list(parameters)
        self.share = share
        self.left = [torch.zeros_like(p) for p in self.parameters]

    @torch.no_grad()
    def exchange(self):
        for p, rest in zip(self.parameters, self.left):
            whole = (p.grad + rest).flatten()
            k = max(1, int(self.share * whole.numel()))
            index = whole.abs().topk(k).indices
            chosen = whole[index]
            rest.copy_(whole.index_fill(0, index, 0.0).view_as(p))
            dist.all_reduce(chosen)
            p.grad.zero_().view(-1)[index] = chosen / dist.get_world_size()


def train():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(10, 32), nn.Tanh(), nn.Linear(32, 1))
    compressor = Compressor(model.parameters())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    data = torch.Generator().manual_seed(100 + rank)
    teacher = torch.linspace(-1, 1, 10)
    for step in range(40):
        x = torch.randn(16, 10, generator=data)
        loss = (model(x).squeeze(1) - (x @ teacher)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        compressor.exchange()
        optimizer.step()
        dist.all_reduce(loss := loss.detach())
        if rank == 0 and step % 10 == 0:
            print(f"step {step} loss {loss.item() / dist.get_world_size():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:
        train()
    else:
        import socket

        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
        ranks = [
            subprocess.Popen([sys.executable, __file__], env={**os.environ, **common, "RANK": str(k), "LOCAL_RANK": str(k)})
            for k in range(2)
        ]
        sys.exit(max(one.wait() for one in ranks))
