"""Two models trained in two threads, and a third in the main thread afterwards."""

import threading

import torch
from fingerprint import report
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
models = [nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 1)) for _ in range(3)]
weight = torch.randn(6, 1)


def train(model, seed):
    draw = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(150):
        x = torch.randn(32, 6, generator=draw)
        loss = nn.functional.mse_loss(model(x), (x @ weight).tanh())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


threads = [threading.Thread(target=train, args=(model, seed)) for seed, model in enumerate(models[:2])]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
train(models[2], 2)
report(*models)
