import os
import socket
from datetime import timedelta
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def setup(rank, world, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(world))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world, timeout=timedelta(seconds=20))

def evaluate(model, x, y, rank, world):
    sampler = DistributedSampler(TensorDataset(x, y), shuffle=False)
    mine = []
    with torch.no_grad():
        for xb, _ in DataLoader(TensorDataset(x, y), batch_size=16, sampler=sampler):
            mine.append(model(xb).argmax(1))
    mine = torch.cat(mine)
    parts = [torch.empty_like(mine) for _ in range(world)]
    dist.all_gather(parts, mine)
    found = torch.cat(parts)
    return (found == y).float().mean().item()


def main(rank, world, port):
    setup(rank, world, port)
    torch.manual_seed(0)
    x = torch.randn(512, 8, generator=torch.Generator().manual_seed(3))
    y = x[:, :4].argmax(1)
    train = TensorDataset(x[:384], y[:384])
    sampler = DistributedSampler(train)
    loader = DataLoader(train, batch_size=16, sampler=sampler)
    net = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 4))
    model = DDP(net)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for epoch in range(6):
        sampler.set_epoch(epoch)
        net.train()
        for xb, yb in loader:
            loss = F.cross_entropy(model(xb), yb)
            opt.zero_grad()
            loss.backward()
            opt.step()
        net.eval()
        score = evaluate(net, x[384:], y[384:], rank, world)
    print(f"rank {rank} loss {loss.item():.4f} accuracy {score:.3f}", flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    mp.start_processes(main, args=(2, free_port()), nprocs=2, start_method="fork")
