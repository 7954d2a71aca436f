import os
import socket
import torch
import torch.nn as nn
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.algorithms.join import Join
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset


def setup(rank, world, port):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(port)
    dist.init_process_group("gloo", rank=rank, world_size=world)

def worker(rank, world, port):
    setup(rank, world, port)
    torch.manual_seed(0)
    ddp = DDP(nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 2)))
    opt = ZeroRedundancyOptimizer(ddp.parameters(), torch.optim.Adam, lr=0.01)
    g = torch.Generator().manual_seed(40 + rank)
    x = torch.randn(300 + 70 * rank, 6, generator=g)
    loader = DataLoader(TensorDataset(x, (x[:, 0] * x[:, 1] > 0).long()), batch_size=32, shuffle=True, generator=g)
    for epoch in range(5):
        correct = seen = 0
        with Join([ddp, opt]):
            for inputs, targets in loader:
                out = ddp(inputs)
                loss = nn.functional.cross_entropy(out, targets)
                opt.zero_grad()
                loss.backward()
                opt.step()
                correct += (out.argmax(1) == targets).sum().item()
                seen += len(targets)
        counts = [None] * world
        dist.all_gather_object(counts, {"rank": rank, "correct": correct, "seen": seen, "loss": loss.item()})
        if rank == 0:
            share = sum(c["correct"] for c in counts) / sum(c["seen"] for c in counts)
            print(f"epoch {epoch} accuracy {share:.3f} loss {sum(c['loss'] for c in counts) / world:.4f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    mp.spawn(worker, args=(2, free_port()), nprocs=2)
