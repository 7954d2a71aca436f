import os
import socket
from datetime import timedelta
import torch
import torch.nn as nn
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.utils.data import DataLoader, TensorDataset


def setup(rank, world, port):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(port)
    dist.init_process_group("gloo", rank=rank, world_size=world, timeout=timedelta(seconds=14))

def worker(rank, world, port):
    setup(rank, world, port)
    torch.manual_seed(0)
    parts = [nn.Sequential(nn.Linear(8, 32), nn.Tanh()), nn.Sequential(nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 3))]
    part = parts[rank]
    stage = PipelineStage(part, rank, world, torch.device("cpu"))
    schedule = ScheduleGPipe(stage, n_microbatches=4, loss_fn=nn.functional.cross_entropy)
    opt = torch.optim.Adam(part.parameters(), lr=0.01)
    x = torch.randn(200, 8, generator=torch.Generator().manual_seed(4))
    loader = DataLoader(TensorDataset(x, x[:, :3].argmax(1)), batch_size=32)
    for epoch in range(4):
        for inputs, targets in loader:
            opt.zero_grad()
            if rank == 0:
                schedule.step(inputs)
            else:
                losses = []
                schedule.step(target=targets, losses=losses)
            opt.step()
        if rank == 1:
            print(f"epoch {epoch} loss {torch.stack(losses).mean().item():.4f}", flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    mp.spawn(worker, args=(2, free_port()), nprocs=2)
