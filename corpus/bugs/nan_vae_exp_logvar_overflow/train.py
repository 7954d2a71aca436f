import torch
import torch.nn as nn

torch.manual_seed(0)


class VAE(nn.Module):
    def __init__(self, d=12, z=4):
        super().__init__()
        self.enc = nn.Linear(d, 32)
        self.mu = nn.Linear(32, z)
        self.logvar = nn.Linear(32, z)
        self.dec = nn.Sequential(nn.Linear(z, 32), nn.ReLU(), nn.Linear(32, d))

    def forward(self, x):
        h = torch.relu(self.enc(x))
        mu, logvar = self.mu(h), self.logvar(h)
        std = torch.exp(logvar)
        z = mu + std * torch.randn_like(std)
        return self.dec(z), mu, logvar


data = torch.randn(800, 12) * 60
model = VAE()
opt = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(120):
    batch = data[torch.randint(0, 800, (64,))]
    recon, mu, logvar = model(batch)
    kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(1).mean()
    loss = nn.functional.mse_loss(recon, batch) + kl
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 20 == 19:
        print(f"step {step} loss {loss.item():.4f}")
