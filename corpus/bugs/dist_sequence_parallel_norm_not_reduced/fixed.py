import os
import socket
from datetime import timedelta
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
import torch.multiprocessing as mp


def setup(rank, world, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank))
    dist.init_process_group("gloo", rank=rank, world_size=world, timeout=timedelta(seconds=14))

import torch.distributed.nn.functional as dfn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(24, 16)
        self.norm = nn.LayerNorm(16)
        self.mix = nn.Linear(16, 16)
        self.head = nn.Linear(16, 24)

    def forward(self, ids, rank, world):
        x = self.emb(ids)
        chunk = x.chunk(world, dim=1)[rank]
        chunk = self.norm(chunk)
        x = torch.cat(dfn.all_gather(chunk.contiguous()), dim=1)
        return self.head(torch.tanh(self.mix(x)).cumsum(1))


def main(rank, world, port):
    setup(rank, world, port)
    torch.manual_seed(0)
    model = Net()
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    shared = [p for n, p in model.named_parameters() if n.startswith(("emb", "norm"))]
    g = torch.Generator().manual_seed(2)
    for step in range(40):
        start = torch.randint(0, 24, (8, 1), generator=g)
        seq = (start + torch.arange(9) * 5) % 24
        loss = F.cross_entropy(model(seq[:, :-1], rank, world).flatten(0, 1), seq[:, 1:].flatten()) / world
        opt.zero_grad()
        loss.backward()
        for p in shared:
            dist.all_reduce(p.grad)
        opt.step()
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    mp.spawn(main, args=(2, free_port()), nprocs=2)
