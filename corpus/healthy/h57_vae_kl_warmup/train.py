import torch
import torch.nn as nn

torch.manual_seed(0)


class VAE(nn.Module):
    def __init__(self, d=16, z=3):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(d, 32), nn.ReLU())
        self.mu, self.logvar = nn.Linear(32, z), nn.Linear(32, z)
        self.dec = nn.Sequential(nn.Linear(z, 32), nn.ReLU(), nn.Linear(32, d))

    def forward(self, x):
        h = self.enc(x)
        mu, logvar = self.mu(h), self.logvar(h)
        z = mu + torch.exp(0.5 * logvar) * torch.randn_like(mu)
        return self.dec(z), mu, logvar


data = torch.tanh(torch.randn(1000, 3) @ torch.randn(3, 16))
model = VAE()
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
for epoch in range(8):
    beta = min(1.0, epoch / 5) * 0.05
    for idx in torch.randperm(1000).split(50):
        recon, mu, logvar = model(data[idx])
        rec = nn.functional.mse_loss(recon, data[idx])
        kl = -0.5 * (1 + logvar - mu**2 - logvar.exp()).sum(1).mean()
        opt.zero_grad()
        (rec + beta * kl).backward()
        opt.step()
    print(f"epoch {epoch} rec {rec.item():.4f} kl {kl.item():.4f} beta {beta:.3f}")
