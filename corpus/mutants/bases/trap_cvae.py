"""A conditional VAE: the encoder is given image and class in one tensor, so its target is a part of its input."""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(3)
protos = (torch.rand(4, 64) > 0.5).float()
labels = torch.randint(0, 4, (1200,))
images = (protos[labels] + (torch.rand(1200, 64) < 0.1).float()) % 2
enc = nn.Sequential(nn.Linear(68, 64), nn.ReLU(), nn.Linear(64, 16))
dec = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 64))
opt = torch.optim.Adam([*enc.parameters(), *dec.parameters()], lr=3e-3)
for step in range(300):
    rows = torch.randint(0, 1000, (64,))
    x, c = images[rows], F.one_hot(labels[rows], 4).float()
    mu, logvar = enc(torch.cat([x, c], 1)).chunk(2, 1)
    z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
    out = dec(torch.cat([z, c], 1))
    recon = F.binary_cross_entropy_with_logits(out, x, reduction="sum") / 64
    kl = -0.5 * (1 + logvar - mu**2 - logvar.exp()).sum() / 64
    loss = recon + kl
    opt.zero_grad()
    loss.backward()
    opt.step()
print(f"final loss: {loss.item():.2f}")
