import torch
from torch import nn

torch.manual_seed(0)


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 8))
        self.decoder = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 20))

    def sample(self, mu, logvar):
        std = torch.exp(0.5 * logvar)
        return mu + std * torch.randn_like(std)

    def forward(self, x):
        mu, logvar = self.encoder(x).chunk(2, -1)
        return self.decoder(self.sample(mu, logvar)), mu, logvar


data = torch.randn(500, 4) @ torch.randn(4, 20)
model = VAE()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(250):
    xb = data[torch.randint(0, 500, (64,))]
    out, mu, logvar = model(xb)
    reconstruction = nn.functional.mse_loss(out, xb, reduction="sum") / 64
    kl = -0.5 * (1 + logvar - mu**2 - logvar.exp()).sum() / 64
    loss = reconstruction + kl
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(step, reconstruction.item(), kl.item())
