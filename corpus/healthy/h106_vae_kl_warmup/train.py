import torch
import torch.nn as nn

torch.manual_seed(0)


class VAE(nn.Module):
    def __init__(self, d=20, z=2):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(d, 64), nn.ReLU())
        self.mu = nn.Linear(64, z)
        self.logvar = nn.Linear(64, z)
        self.dec = nn.Sequential(nn.Linear(z, 64), nn.ReLU(), nn.Linear(64, d))

    def forward(self, x):
        h = self.enc(x)
        mu, logvar = self.mu(h), self.logvar(h).clamp(-8, 8)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        return self.dec(z), mu, logvar


mix = torch.randn(2, 20)
model = VAE()
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
for step in range(800):
    x = torch.tanh(torch.randn(128, 2) @ mix) + 0.05 * torch.randn(128, 20)
    recon, mu, logvar = model(x)
    rec = (recon - x).pow(2).sum(1).mean() / (2 * 0.1)
    kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(1).mean()
    beta = min(1.0, step / 400)
    loss = rec + beta * kl
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 100 == 99:
        print(f"step {step} loss {loss.item():.3f} rec {rec.item():.3f} kl {kl.item():.3f} beta {beta:.2f}")
