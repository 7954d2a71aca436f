import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

PAD, WORDS = 0, 40


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, 24, padding_idx=PAD)
        self.rnn = nn.GRU(24, 32, batch_first=True)
        self.head = nn.Linear(32, WORDS)

    def forward(self, words):
        return self.head(self.rnn(self.embed(words))[0])


def batch(rank, step):
    """The ranks have documents of different kinds: those of rank 1 are long."""
    g = torch.Generator().manual_seed(1000 * rank + step)
    length = torch.randint(3, 8, (8,), generator=g) + 10 * rank
    words = torch.full((8, 20), PAD)
    for row, n in enumerate(length.tolist()):
        words[row, :n] = (torch.randint(1, WORDS, (1,), generator=g) + torch.arange(n) * (row + 1)) % (WORDS - 1) + 1
    return words


def worker(rank, world, port):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
    torch.manual_seed(0)
    ddp = DistributedDataParallel(Model())
    optimizer = torch.optim.AdamW(ddp.parameters(), lr=3e-3)
    for step in range(30):
        words = batch(rank, step)
        logits = ddp(words[:, :-1])
        targets = words[:, 1:]
        loss = F.cross_entropy(logits.reshape(-1, WORDS), targets.reshape(-1), ignore_index=PAD)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        shown = loss.detach().clone()
        dist.all_reduce(shown)
        if rank == 0 and step % 10 == 0:
            print(step, shown.item() / world)
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(worker, (2, port), nprocs=2)
