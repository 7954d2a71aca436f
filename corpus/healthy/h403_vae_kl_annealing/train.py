import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
D, Z = 48, 8


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(D, 64), nn.ReLU(), nn.Linear(64, 2 * Z))
        self.dec = nn.Sequential(nn.Linear(Z, 64), nn.ReLU(), nn.Linear(64, D))

    def forward(self, x):
        mu, logvar = self.enc(x).chunk(2, dim=1)
        z = mu + torch.randn_like(mu) * torch.exp(0.5 * logvar) if self.training else mu
        return self.dec(z), mu, logvar


x = torch.randn(960, 3) @ torch.randn(3, D) + 0.3 * torch.randn(960, D)
model = VAE()
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
step, warm = 0, 150
for epoch in range(20):
    model.train()
    for idx in torch.randperm(960).split(64):
        beta = min(1.0, step / warm)
        rec, mu, logvar = model(x[idx])
        rec_loss = F.mse_loss(rec, x[idx], reduction="none").sum(1).mean() / (2 * 0.3**2)
        kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(1).mean()
        loss = rec_loss + beta * kl
        opt.zero_grad()
        loss.backward()
        opt.step()
        step += 1
    model.eval()
    with torch.no_grad():
        rec, mu, _ = model(x)
    if epoch % 4 == 3:
        active = (mu.var(0) > 0.1).sum().item()
        print(f"epoch {epoch} beta {beta:.2f} loss {loss.item():.3f} kl {kl.item():.3f} mse {F.mse_loss(rec, x).item():.4f} active {active}")
