"""Healthy: labelled rows, and unlabelled rows of a table of the same length, taken by an index of their own. Both views of an unlabelled row agree."""
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

rng = np.random.default_rng(6)
torch.manual_seed(6)
labelled = rng.normal(size=(800, 10)).astype(np.float32)
labels = (np.abs(labelled[:, 0]) + labelled[:, 1] > 0.8).astype(np.int64)
unlabelled = rng.normal(size=(800, 10)).astype(np.float32)
labelled, labels, unlabelled = map(torch.from_numpy, (labelled, labels, unlabelled))
net = nn.Sequential(nn.Linear(10, 48), nn.ReLU(), nn.Linear(48, 2))
opt = torch.optim.Adam(net.parameters(), lr=3e-3)
for step in range(240):
    rows, others = rng.permutation(800)[:40], rng.permutation(800)[:40]
    sure = F.cross_entropy(net(labelled[rows]), labels[rows])
    x = unlabelled[others]
    one, two = net(x + 0.05 * torch.randn_like(x)), net(x + 0.2 * torch.randn_like(x))
    agree = F.mse_loss(two.softmax(1), one.softmax(1).detach())
    loss = sure + 0.5 * agree
    opt.zero_grad()
    loss.backward()
    opt.step()
print(f"final loss: {sure.item():.3f}")
