import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

TEXT = """the cat sat on the warm mat and the dog lay by the door while a bird sang in the old tree near the quiet river
good bad fine poor great awful nice sad glad dull bright dark fresh stale clean dirty""".split()
GOOD = {"good", "fine", "great", "nice", "glad", "bright", "fresh", "clean"}
BAD = {"bad", "poor", "awful", "sad", "dull", "dark", "stale", "dirty"}
BUCKETS = 512


def bucket(word):
    return hash(word) % BUCKETS


class Reviews(torch.utils.data.Dataset):
    def __init__(self, count):
        g = torch.Generator().manual_seed(0)
        self.rows = [[TEXT[k] for k in torch.randint(0, len(TEXT), (12,), generator=g)] for _ in range(count)]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, k):
        words = self.rows[k]
        score = sum((w in GOOD) - (w in BAD) for w in words)
        return torch.tensor([bucket(w) for w in words]), torch.tensor(float(score > 0))


class Bag(nn.Module):
    def __init__(self):
        super().__init__()
        self.rows = nn.EmbeddingBag(BUCKETS, 16, mode="mean")
        self.out = nn.Linear(16, 1)

    def forward(self, x):
        return self.out(self.rows(x)).squeeze(1)


def worker(rank, world, port):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
    torch.manual_seed(0)
    data = Reviews(512)
    sampler = torch.utils.data.DistributedSampler(data, shuffle=True, seed=1)
    loader = torch.utils.data.DataLoader(data, batch_size=32, sampler=sampler)
    ddp = DDP(Bag())
    optimizer = torch.optim.Adam(ddp.parameters(), 0.02)
    for epoch in range(4):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(ddp(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        mean = loss.detach() / world
        dist.all_reduce(mean)
        if rank == 0:
            print(epoch, mean.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(worker, (2, port), nprocs=2)
