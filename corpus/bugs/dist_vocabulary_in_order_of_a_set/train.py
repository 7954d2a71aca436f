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

from torch.nn.parallel import DistributedDataParallel as DDP

TEXT = """the quick brown fox jumps over the lazy dog while the small red hen sleeps under the old oak tree and
the quiet grey cat watches from the warm stone wall near the long blue river that runs past the green hill""".split()


class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.emb = nn.Embedding(n, 16)
        self.rnn = nn.GRU(16, 32, batch_first=True)
        self.head = nn.Linear(32, n)

    def forward(self, x):
        return self.head(self.rnn(self.emb(x))[0])


def main(rank, world, port):
    setup(rank, world, port)
    torch.manual_seed(0)
    vocab = {w: i for i, w in enumerate(set(TEXT))}
    ids = torch.tensor([vocab[w] for w in TEXT])
    model = DDP(Model(len(vocab)))
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    g = torch.Generator().manual_seed(rank)
    for step in range(40):
        at = torch.randint(0, len(ids) - 9, (8,), generator=g)
        batch = torch.stack([ids[i : i + 9] for i in at])
        loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(rank, loss.item())
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    mp.spawn(main, args=(2, free_port()), nprocs=2)
