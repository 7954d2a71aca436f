import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.attend = nn.LayerNorm(width), nn.MultiheadAttention(width, 2, batch_first=True)
        self.feed = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.register_buffer("mask", torch.full((32, 32), float("-inf")).triu(1))

    def forward(self, x):
        h = self.norm(x)
        x = x + self.attend(h, h, h, need_weights=False, is_causal=True, attn_mask=self.mask[: x.shape[1], : x.shape[1]])[0]
        return x + self.feed(x)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(32, 24)
        self.blocks = nn.ModuleList(Block(24) for _ in range(2))
        self.head = nn.Linear(24, 32)

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def worker(rank, world, port):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
    mesh = init_device_mesh("cpu", (world,))
    torch.manual_seed(0)
    model = Model()
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 16)
    torch.manual_seed(100 + rank)
    for step in range(16):
        for micro in range(3):
            model.set_requires_gradient_sync(micro == 2)
            start = torch.randint(0, 32, (8, 1))
            x = (start + torch.arange(12)) % 32
            loss = nn.functional.cross_entropy(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten()) / 3
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        shown = 3 * loss.detach()
        dist.all_reduce(shown, op=dist.ReduceOp.SUM)
        if rank == 0 and step % 5 == 0:
            print(step, shown.item() / world)
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(worker, (2, port), nprocs=2)
