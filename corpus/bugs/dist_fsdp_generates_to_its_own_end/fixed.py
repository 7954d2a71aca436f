import os
import socket
from datetime import timedelta
import torch
import torch.nn as nn
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.fsdp import fully_shard


def setup(rank, world, port):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(port)
    dist.init_process_group("gloo", rank=rank, world_size=world, timeout=timedelta(seconds=14))

VOCABULARY, END = 12, 0


class Speaker(nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, d)
        self.mix = nn.GRU(d, d, batch_first=True)
        self.head = nn.Linear(d, VOCABULARY)

    def forward(self, words):
        h, _ = self.mix(self.embed(words))
        return self.head(h)


@torch.no_grad()
def generate(model, prompt, g, longest=40):
    words = list(prompt)
    while len(words) < longest:
        logits = model(torch.tensor([words]))[0, -1]
        word = torch.multinomial(logits.softmax(0), 1, generator=g).item()
        words.append(word)
    return words[: words.index(END) + 1] if END in words else words


def worker(rank, world, port):
    setup(rank, world, port)
    torch.manual_seed(0)
    model = Speaker()
    fully_shard(model.head)
    fully_shard(model)
    opt = torch.optim.AdamW(model.parameters(), lr=0.01)
    g = torch.Generator().manual_seed(30 + rank)
    for step in range(40):
        words = torch.randint(0, VOCABULARY, (8, 1), generator=g)
        words = (words + torch.arange(10)) % VOCABULARY
        loss = nn.functional.cross_entropy(model(words[:, :-1]).flatten(0, 1), words[:, 1:].flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 10 == 9:
            sentence = generate(model, [1 + rank, 2 + rank], g)
            print(f"rank {rank} step {step} loss {loss.item():.4f} {sentence}", flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    mp.spawn(worker, args=(2, free_port()), nprocs=2)
