"""LBFGS, whose step calls the closure several times, on a small physics-like fit in float64."""

import torch
from evidence import leave, seed
from torch import nn

seed(10)
model = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1)).double()
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=5, line_search_fn="strong_wolfe")
x = torch.linspace(-2, 2, 24, dtype=torch.float64).unsqueeze(1)
losses = []


def closure():
    optimizer.zero_grad()
    loss = (model(x) - (2 * x).sin()).square().mean()
    loss.backward()
    losses.append(loss.item())
    return loss


for _ in range(6):
    optimizer.step(closure)
leave(losses, {"model": model}, [optimizer])
