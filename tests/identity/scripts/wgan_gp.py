"""WGAN-GP: three critic steps a generator step, and a gradient penalty that is differentiated again."""

import torch
from evidence import leave, seed
from torch import nn

seed(8)
generator = nn.Sequential(nn.Linear(4, 16), nn.Softplus(), nn.Linear(16, 2))
critic = nn.Sequential(nn.Linear(2, 16), nn.Softplus(), nn.Linear(16, 16), nn.Softplus(), nn.Linear(16, 1))
optimizer_g = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.0, 0.9))
optimizer_c = torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.0, 0.9))
losses = []
for _ in range(6):
    for _ in range(3):
        real = torch.randn(8, 2) + 3
        fake = generator(torch.randn(8, 4)).detach()
        mix = torch.rand(8, 1)
        between = (mix * real + (1 - mix) * fake).requires_grad_(True)
        (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
        penalty = (slope.norm(2, dim=1) - 1).square().mean()
        loss_c = critic(fake).mean() - critic(real).mean() + 10 * penalty
        optimizer_c.zero_grad()
        loss_c.backward()
        optimizer_c.step()
        losses.append(loss_c.item())
    loss_g = -critic(generator(torch.randn(8, 4))).mean()
    optimizer_g.zero_grad()
    loss_g.backward()
    optimizer_g.step()
    losses.append(loss_g.item())
leave(losses, {"generator": generator, "critic": critic}, [optimizer_g, optimizer_c])
