import os
import socket
from datetime import timedelta
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method


def setup(rank, world, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(world))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world, timeout=timedelta(seconds=20))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(40, 16)
        self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16)) for _ in range(3))
        self.head = nn.Linear(16, 40)

    def features(self, ids):
        h = self.embed(ids)
        for block in self.blocks:
            h = h + block(h)
        return h

    def forward(self, ids):
        return self.head(self.features(ids))


def main(rank, world, port):
    setup(rank, world, port)
    torch.manual_seed(0)
    model = Net()
    mesh = init_device_mesh("cpu", (world,))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for k, block in enumerate(model.blocks):
        fully_shard(block, mesh=mesh, mp_policy=policy, reshard_after_forward=k != 1)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    register_fsdp_forward_method(model, "features")
    opt = torch.optim.AdamW(model.parameters(), lr=5e-3)
    g = torch.Generator().manual_seed(60 + rank)
    for step in range(25):
        ids = torch.randint(40, (8, 12), generator=g)
        logits = model(ids)
        loss = F.cross_entropy(logits.float().flatten(0, 1), ((ids * 3 + 1) % 40).flatten())
        opt.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).full_tensor()
        opt.step()
        if step % 10 == 0:
            with torch.no_grad():
                spread = model.features(ids).float().std().item()
            if rank == 0:
                print(f"step {step} loss {loss.item():.4f} norm {norm.item():.3f} {spread:.3f}", flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    mp.start_processes(main, args=(2, free_port()), nprocs=2, start_method="fork")
