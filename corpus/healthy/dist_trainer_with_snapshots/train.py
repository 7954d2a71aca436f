"""A trainer as tutorials write them: started by torchrun, snapshots by rank 0, resumed on all ranks."""
import argparse
import os
import subprocess
import sys
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Samples(Dataset):
    def __init__(self, size):
        g = torch.Generator().manual_seed(0)
        self.x = torch.rand(size, 20, generator=g)
        self.y = self.x.sum(1, keepdim=True) + 0.1 * torch.randn(size, 1, generator=g)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], self.y[index]


class Trainer:
    def __init__(self, model, loader, optimizer, save_every, path):
        self.rank = int(os.environ["RANK"])
        self.model, self.loader, self.optimizer = model, loader, optimizer
        self.save_every, self.path, self.epochs_run = save_every, path, 0
        if os.path.exists(path):
            snapshot = torch.load(path)
            self.model.load_state_dict(snapshot["model"])
            self.epochs_run = snapshot["epoch"] + 1
        self.model = DDP(self.model)

    def _run_batch(self, x, y):
        self.optimizer.zero_grad()
        loss = nn.functional.mse_loss(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def _run_epoch(self, epoch):
        self.loader.sampler.set_epoch(epoch)
        losses = [self._run_batch(x, y) for x, y in self.loader]
        print(f"[rank {self.rank}] epoch {epoch} | steps {len(self.loader)} | loss {sum(losses) / len(losses):.4f}")

    def _save(self, epoch):
        torch.save({"model": self.model.module.state_dict(), "epoch": epoch}, self.path)

    def train(self, epochs):
        for epoch in range(self.epochs_run, epochs):
            self._run_epoch(epoch)
            if self.rank == 0 and epoch % self.save_every == 0:
                self._save(epoch)


def main(options):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(int(os.environ["RANK"]))
    model = nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
    data = Samples(512)
    loader = DataLoader(data, batch_size=options.batch, sampler=DistributedSampler(data))
    Trainer(model, loader, optimizer, 2, options.snapshot).train(options.epochs)
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--snapshot", default="")
    options = parser.parse_args()
    if "RANK" in os.environ:
        main(options)
    else:
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", __file__]
            command += ["--snapshot", os.path.join(folder, "snapshot.pt")]
            sys.exit(subprocess.run(command).returncode)
