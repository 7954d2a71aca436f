import os
import socket
import tempfile
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Run:
    def __init__(self, rank, world, file):
        self.rank, self.world, self.epoch = rank, world, 0
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
        if rank == 0:
            saved = torch.load(file)
            net.load_state_dict(saved["net"])
            self.epoch = saved["epoch"]
        self.net = DistributedDataParallel(net)
        self.optimizer = torch.optim.Adam(self.net.parameters(), 1e-2)

    def train(self, epochs):
        g = torch.Generator().manual_seed(self.rank)
        x = torch.randn(128, 4, generator=g)
        for epoch in range(self.epoch, epochs):
            for part in x.split(16):
                loss = (self.net(part) - part.prod(1, keepdim=True)).square().mean()
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
            print(f"rank {self.rank} epoch {epoch} loss {loss.item():.3f}", flush=True)


def worker(rank, world, port, file):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world, timeout=timedelta(seconds=12))
    Run(rank, world, file).train(6)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "last.pt")
        net = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
        torch.save({"net": net.state_dict(), "epoch": 3}, file)
        mp.spawn(worker, (2, port, file), nprocs=2)
