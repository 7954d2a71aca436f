"""Gradient accumulation over four micro-batches, a frozen layer, parameter noise from numpy and Python's random."""

import random

import numpy as np
import torch
from evidence import leave, seed
from torch import nn

seed(6)
model = nn.Sequential(
    nn.Linear(10, 16), nn.SiLU(), nn.Dropout(0.2), nn.Linear(16, 16), nn.LayerNorm(16), nn.Linear(16, 1)
)
for parameter in model[0].parameters():
    parameter.requires_grad_(False)
optimizer = torch.optim.Adagrad((p for p in model.parameters() if p.requires_grad), lr=0.05)
losses = []
for micro in range(24):
    x = torch.from_numpy(np.random.randn(6, 10).astype(np.float32)) * random.uniform(0.5, 1.5)
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean() / 4
    loss.backward()
    losses.append(loss.item())
    if micro % 4 == 3:
        optimizer.step()
        optimizer.zero_grad()
leave(losses, {"model": model}, [optimizer])
