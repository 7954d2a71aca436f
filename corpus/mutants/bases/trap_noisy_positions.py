"""Healthy: what is read at every position is one number of the sample and noise. Nothing tells the noise of one position from that of another."""
import torch
from torch import nn

torch.manual_seed(3)


def sample(count):
    level = torch.randn(count, 1, 1)
    seen = level + 0.5 * torch.randn(count, 16, 2)
    wanted = level[..., 0] + 1.2 * torch.randn(count, 16)
    return seen, wanted


net = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 1))
opt = torch.optim.Adam(net.parameters(), lr=3e-3)
for step in range(240):
    seen, wanted = sample(32)
    guess = net(seen.mean(1, keepdim=True).expand(-1, 16, -1)).squeeze(-1)
    loss = ((guess - wanted) ** 2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(f"final loss: {loss.item():.3f}")
