"""A GradScaler that skips a step in the middle because of an infinite gradient, and clips unscaled gradients."""

import torch
from evidence import leave, seed
from torch import nn

seed(9)
model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2)
losses, scales = [], []
for step in range(8):
    x = torch.randn(8, 6)
    if step in (2, 5):
        x[0, 0] = float("inf")
    loss = (model(x) - 1).square().mean()
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    losses.append(loss.item())
    scales.append(scaler.get_scale())
leave(losses, {"model": model}, [optimizer], scales=scales, scaler=scaler.state_dict())
