"""Healthy: a rating is learnt where there is one, and whether there is one is learnt of all; most ratings of a batch are the highest one."""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(8)
x = torch.randn(2000, 8)
rated = (x[:, 0] + 0.5 * x[:, 1] > 0.5).float()
rating = torch.where(x[:, 2] + x[:, 3] > -1.5, torch.tensor(5.0), torch.tensor(3.0)) * rated
body = nn.Sequential(nn.Linear(8, 32), nn.ReLU())
there, stars = nn.Linear(32, 1), nn.Linear(32, 1)
opt = torch.optim.Adam([*body.parameters(), *there.parameters(), *stars.parameters()], lr=5e-3)
for step in range(260):
    rows = torch.randint(0, 2000, (64,))
    h = body(x[rows])
    has = F.binary_cross_entropy_with_logits(there(h).squeeze(1), rated[rows])
    off = ((stars(h).squeeze(1) - rating[rows]) ** 2 * rated[rows]).sum() / rated[rows].sum()
    loss = has + 0.2 * off
    opt.zero_grad()
    loss.backward()
    opt.step()
print(f"final loss: {loss.item():.3f}")
