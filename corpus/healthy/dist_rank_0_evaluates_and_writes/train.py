import os
import socket
from datetime import timedelta
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
import torch.multiprocessing as mp
import copy
import tempfile
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def setup(rank, world, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(world))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world, timeout=timedelta(seconds=20))

def main(rank, world, port, folder):
    setup(rank, world, port)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.GELU(), nn.Linear(32, 4))
    model = DDP(net)
    opt = torch.optim.AdamW(model.parameters(), lr=5e-3)
    average = copy.deepcopy(net) if rank == 0 else None
    x = torch.randn(384, 8, generator=torch.Generator().manual_seed(3))
    y = x[:, :4].argmax(1)
    data = TensorDataset(x[:320], y[:320])
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=16, sampler=sampler)
    best = float("inf")
    for epoch in range(4):
        sampler.set_epoch(epoch)
        net.train()
        for xb, yb in loader:
            loss = F.cross_entropy(model(xb), yb)
            opt.zero_grad()
            loss.backward()
            opt.step()
            if average is not None:
                with torch.no_grad():
                    for a, p in zip(average.parameters(), net.parameters()):
                        a.lerp_(p, 0.1)
        if rank == 0:
            net.eval()
            with torch.no_grad():
                score = F.cross_entropy(net(x[320:]), y[320:]).item()
            net.train()
            if score < best:
                best = score
                torch.save(net.state_dict(), f"{folder}/best.pt")
        dist.barrier()
    net.load_state_dict(torch.load(f"{folder}/best.pt"))
    net.eval()
    with torch.no_grad():
        last = F.cross_entropy(net(x[320:]), y[320:]).item()
    print(f"rank {rank} best {last:.4f}", flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.start_processes(main, args=(2, free_port(), folder), nprocs=2, start_method="fork")
