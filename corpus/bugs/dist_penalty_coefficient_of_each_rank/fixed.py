import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributions import Categorical, kl_divergence
from torch.nn.parallel import DistributedDataParallel as DDP


class AdaptiveKL:
    def __init__(self, target=0.02):
        self.weight, self.target = 1.0, target

    def adapt(self, divergence):
        if divergence > 1.5 * self.target:
            self.weight *= 2
        elif divergence < self.target / 1.5:
            self.weight /= 2


def worker(rank, world, port):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
    torch.manual_seed(0)
    policy = DDP(nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 3)))
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
    penalty = AdaptiveKL()
    g = torch.Generator().manual_seed(rank)
    torch.manual_seed(50 + rank)
    for step in range(30):
        x = torch.randn(64, 6, generator=g) * (1 + 2 * rank)
        with torch.no_grad():
            old = Categorical(logits=policy.module(x))
            action = old.sample()
        reward = (action == x[:, :3].argmax(1)).float() - 0.33
        for _ in range(3):
            new = Categorical(logits=policy(x))
            ratio = (new.log_prob(action) - old.log_prob(action)).exp()
            divergence = kl_divergence(old, new).mean()
            loss = -(ratio * reward).mean() + penalty.weight * divergence
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        whole = divergence.detach().clone()
        dist.all_reduce(whole)
        penalty.adapt(whole.item() / world)
    print(f"rank {rank} weight {penalty.weight:.3f} reward {reward.mean():.2f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(worker, (2, port), nprocs=2)
