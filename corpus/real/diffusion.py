"""Denoising diffusion on a ring of points, with an EMA of the weights and sampling after training."""

import math

import torch
from fingerprint import report
from torch import nn

torch.manual_seed(0)
T = 50
betas = torch.linspace(1e-4, 0.05, T)
alphas = torch.cumprod(1 - betas, 0)


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(16, 64), nn.SiLU())
        self.inp = nn.Linear(2, 64)
        self.body = nn.ModuleList(nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 64), nn.SiLU()) for _ in range(3))
        self.out = nn.Linear(64, 2)

    def forward(self, x, t):
        frequency = torch.exp(torch.arange(8) * -(math.log(1000) / 8))
        angle = t[:, None].float() * frequency
        embedding = self.time(torch.cat([angle.sin(), angle.cos()], -1))
        h = self.inp(x)
        for block in self.body:
            h = h + block(h + embedding)
        return self.out(h)


model, ema = Denoiser(), Denoiser()
ema.load_state_dict(model.state_dict())
ema.requires_grad_(False)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 400)
for step in range(400):
    angle = torch.rand(64) * 2 * math.pi
    clean = torch.stack([angle.cos(), angle.sin()], 1)
    t = torch.randint(0, T, (64,))
    noise = torch.randn_like(clean)
    noisy = alphas[t, None].sqrt() * clean + (1 - alphas[t, None]).sqrt() * noise
    loss = nn.functional.mse_loss(model(noisy, t), noise)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    schedule.step()
    with torch.no_grad():
        for mine, theirs in zip(ema.state_dict().values(), model.state_dict().values()):
            mine.mul_(0.98).add_(theirs, alpha=0.02)
    if step % 100 == 0:
        print(step, f"{loss.item():.6f}")
with torch.no_grad():
    x = torch.randn(64, 2)
    for k in reversed(range(T)):
        predicted = ema(x, torch.full((64,), k))
        x = (x - betas[k] / (1 - alphas[k]).sqrt() * predicted) / (1 - betas[k]).sqrt()
        if k:
            x = x + betas[k].sqrt() * torch.randn_like(x)
print(f"radius {x.norm(dim=1).mean().item():.4f}")
report(model, ema, optimizer)
