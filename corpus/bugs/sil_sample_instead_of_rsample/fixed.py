import torch
import torch.nn as nn
from torch.distributions import Normal

torch.manual_seed(0)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8))
        self.dec = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 16))

    def forward(self, x):
        mu, raw = self.enc(x).chunk(2, -1)
        q = Normal(mu, nn.functional.softplus(raw) + 1e-3)
        z = q.rsample()
        return self.dec(z)


basis = torch.randn(3, 16)
model = Model()
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(120):
    x = torch.randn(64, 3) @ basis
    loss = nn.functional.mse_loss(model(x), x)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 30 == 29:
        print(f"step {step} loss {loss.item():.4f}")
