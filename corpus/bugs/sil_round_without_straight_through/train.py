import torch
import torch.nn as nn

torch.manual_seed(0)


class Quantizer(nn.Module):
    def __init__(self, levels=8):
        super().__init__()
        self.levels = levels

    def forward(self, z):
        z = torch.sigmoid(z) * self.levels
        return torch.round(z) / self.levels


class Codec(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 6))
        self.quant = Quantizer()
        self.decoder = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 20))

    def forward(self, x):
        return self.decoder(self.quant(self.encoder(x)))


basis = torch.randn(4, 20)
codec = Codec()
opt = torch.optim.Adam(codec.parameters(), lr=3e-3)
for step in range(120):
    x = torch.randn(64, 4) @ basis * 0.5
    loss = nn.functional.mse_loss(codec(x), x)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 30 == 29:
        print(f"step {step} loss {loss.item():.4f}")
