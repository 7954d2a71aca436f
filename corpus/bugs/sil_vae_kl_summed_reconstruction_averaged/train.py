# pattern source: zdebruine/MMVAE#19, wiseodd/generative-models#40, AppliedDataSciencePartners/WorldModels#12, keras-team/keras#3383
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


class VAE(nn.Module):
    def __init__(self, d=32, h=64, z=4):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(d, h), nn.ReLU())
        self.mu, self.logvar = nn.Linear(h, z), nn.Linear(h, z)
        self.dec = nn.Sequential(nn.Linear(z, h), nn.ReLU(), nn.Linear(h, d))

    def forward(self, x):
        h = self.enc(x)
        mu, logvar = self.mu(h), self.logvar(h)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        return self.dec(z), mu, logvar


def vae_loss(recon, x, mu, logvar):
    rec = F.mse_loss(recon, x)
    kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return rec + kld, rec, kld


mix = torch.randn(3, 32)
x = torch.randn(1200, 3) @ mix + 0.1 * torch.randn(1200, 32)
model = VAE()
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
for epoch in range(12):
    for idx in torch.randperm(1200).split(60):
        recon, mu, logvar = model(x[idx])
        loss, rec, kld = vae_loss(recon, x[idx], mu, logvar)
        opt.zero_grad()
        loss.backward()
        opt.step()
    if epoch % 2 == 1:
        with torch.no_grad():
            recon, mu, _ = model(x)
            err = F.mse_loss(recon, x).item()
        print(f"epoch {epoch} loss {loss.item():.4f} recon {err:.4f} data var {x.var():.4f} std of mu {mu.std(0).mean():.4f}")
