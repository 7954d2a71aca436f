import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn


class RunningScale:
    def __init__(self, width):
        self.mean, self.var, self.count = torch.zeros(width), torch.ones(width), 1e-4

    def update(self, x):
        total, mean, var = len(x), x.mean(0), x.var(0)
        delta = mean - self.mean
        whole = self.count + total
        self.var = (self.var * self.count + var * total + delta.square() * self.count * total / whole) / whole
        self.mean = self.mean + delta * total / whole
        self.count = whole

    def __call__(self, x):
        return (x - self.mean) / (self.var + 1e-8).sqrt()


class Bandit:
    """Contexts of the ranks' sites have different ranges."""

    def __init__(self, rank):
        self.g = torch.Generator().manual_seed(rank)
        self.shift, self.scale = 4.0 * rank, 1.0 + 2.0 * rank

    def contexts(self, n):
        return torch.randn(n, 4, generator=self.g) * self.scale + self.shift

    def reward(self, x, action):
        return ((x.sum(1) > 8).long() == action).float()


def play(rank, world, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.manual_seed(0)
    policy = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2))
    for p in policy.parameters():
        dist.broadcast(p.data, 0)
    optimizer = torch.optim.Adam(policy.parameters(), lr=5e-3)
    scale, bandit = RunningScale(4), Bandit(rank)
    torch.manual_seed(10 + rank)
    for step in range(40):
        x = bandit.contexts(64)
        scale.update(x)
        chance = torch.distributions.Categorical(logits=policy(scale(x)))
        action = chance.sample()
        reward = bandit.reward(x, action)
        loss = -(chance.log_prob(action) * (reward - 0.5)).mean()
        optimizer.zero_grad()
        loss.backward()
        for p in policy.parameters():
            dist.all_reduce(p.grad)
            p.grad /= world
        optimizer.step()
        if rank == 0 and step % 10 == 9:
            print(f"step {step + 1} reward {reward.mean():.2f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.start_processes(play, (2, port), nprocs=2, start_method="spawn")
