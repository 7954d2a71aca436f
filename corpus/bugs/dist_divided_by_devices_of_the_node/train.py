import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors


class Buckets:
    def __init__(self, model, size=2000):
        self.buckets = [[]]
        for p in reversed(list(model.parameters())):
            if sum(q.numel() for q in self.buckets[-1]) > size:
                self.buckets.append([])
            self.buckets[-1].append(p)
        self.replicas = torch.cuda.device_count() or 1

    def reduce(self):
        for bucket in self.buckets:
            grads = [p.grad for p in bucket]
            flat = _flatten_dense_tensors(grads)
            dist.all_reduce(flat)
            flat /= self.replicas
            for grad, whole in zip(grads, _unflatten_dense_tensors(flat, grads)):
                grad.copy_(whole)


def run(rank, world, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 32), nn.ReLU(), nn.Linear(32, 4))
    buckets = Buckets(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    g = torch.Generator().manual_seed(77 + rank)
    criterion = nn.CrossEntropyLoss()
    for step in range(30):
        images = torch.randn(16, 1, 8, 8, generator=g)
        labels = images.flatten(1)[:, :4].argmax(1)
        optimizer.zero_grad(set_to_none=True)
        loss = criterion(model(images), labels)
        loss.backward()
        buckets.reduce()
        optimizer.step()
        if rank == 0 and step % 10 == 0:
            print(step, round(loss.item(), 4))
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(run, (2, port), nprocs=2)
