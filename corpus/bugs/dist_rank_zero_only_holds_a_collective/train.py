import functools
import os
import sys
from datetime import timedelta
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def rank_zero_only(function):
    @functools.wraps(function)
    def wrapped(*args, **kwargs):
        if int(os.environ["RANK"]) == 0:
            return function(*args, **kwargs)

    return wrapped


class Trainer:
    def __init__(self, model, loader, sampler):
        self.model, self.loader, self.sampler = model, loader, sampler
        self.opt = torch.optim.Adam(model.parameters(), lr=1e-2)
        self.step = 0

    @rank_zero_only
    def log_metrics(self, loss):
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        print(f"step {self.step} loss {mean.item() / dist.get_world_size():.4f}", flush=True)

    def fit(self, epochs):
        for epoch in range(epochs):
            self.sampler.set_epoch(epoch)
            for x, y in self.loader:
                loss = nn.functional.cross_entropy(self.model(x), y)
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
                self.step += 1
                if self.step % 7 == 0:
                    self.log_metrics(loss)


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=15))
    torch.manual_seed(0)
    x = torch.randn(320, 6)
    data = TensorDataset(x, (x[:, 0] * x[:, 1] > 0).long())
    sampler = DistributedSampler(data)
    model = DDP(nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 2)))
    Trainer(model, DataLoader(data, batch_size=16, sampler=sampler), sampler).fit(3)
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:
        main()
    else:
        from torch.distributed.run import main as launch

        launch(["--standalone", "--nproc-per-node", "2", sys.argv[0]])
