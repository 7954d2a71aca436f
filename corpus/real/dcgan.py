"""A convolutional GAN with two optimizers, spectral norm and a detached generator pass."""

import torch
from fingerprint import report
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


def init(module):
    if isinstance(module, nn.Conv2d | nn.ConvTranspose2d):
        nn.init.normal_(module.weight, 0.0, 0.02)


G = nn.Sequential(
    nn.ConvTranspose2d(16, 32, 4, 1, 0, bias=False), nn.BatchNorm2d(32), nn.ReLU(True),
    nn.ConvTranspose2d(32, 16, 4, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(True),
    nn.ConvTranspose2d(16, 1, 4, 2, 1, bias=False), nn.Tanh(),
)  # fmt: skip
D = nn.Sequential(
    nn.utils.parametrizations.spectral_norm(nn.Conv2d(1, 16, 4, 2, 1)), nn.LeakyReLU(0.2, True),
    nn.utils.parametrizations.spectral_norm(nn.Conv2d(16, 32, 4, 2, 1)), nn.LeakyReLU(0.2, True),
    nn.Conv2d(32, 1, 4, 1, 0), nn.Flatten(),
)  # fmt: skip
G.apply(init)
opt_g = torch.optim.Adam(G.parameters(), lr=2e-4, betas=(0.5, 0.999))
opt_d = torch.optim.Adam(D.parameters(), lr=2e-4, betas=(0.5, 0.999))
bce = nn.BCEWithLogitsLoss()
grid = torch.linspace(-1, 1, 16)
for step in range(60):
    centre = torch.rand(16, 2, 1, 1) - 0.5
    real = (((grid[None, :, None] - centre[:, 0]) ** 2 + (grid[None, None, :] - centre[:, 1]) ** 2) < 0.2).float()
    real = real.unsqueeze(1) * 2 - 1
    fake = G(torch.randn(16, 16, 1, 1))
    opt_d.zero_grad()
    loss_d = bce(D(real), torch.ones(16, 1)) + bce(D(fake.detach()), torch.zeros(16, 1))
    loss_d.backward()
    opt_d.step()
    opt_g.zero_grad()
    loss_g = bce(D(fake), torch.ones(16, 1))
    loss_g.backward()
    opt_g.step()
    if step % 20 == 0:
        print(step, f"{loss_d.item():.6f} {loss_g.item():.6f}")
report(G, D, opt_g, opt_d)
