# pattern source: pytorch/pytorch#7002, PeterL1n/BackgroundMattingV2#128, MCG-NJU/EMA-VFI#27
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class AutoEncoder(nn.Module):
    def __init__(self, pixels=64, code=12):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(pixels, 64), nn.ReLU(), nn.Linear(64, code))
        self.decoder = nn.Sequential(nn.Linear(code, 64), nn.ReLU(), nn.Linear(64, pixels))
        for m in self.modules():
            if isinstance(m, nn.Linear):
                nn.init.kaiming_normal_(m.weight)
                nn.init.zeros_(m.bias)

    def forward(self, x):
        z = self.encoder(x)
        return torch.clamp(self.decoder(z), 0.0, 1.0)


basis = torch.rand(8, 64) ** 2
mix = torch.rand(1500, 8)
mix = mix / mix.sum(1, keepdim=True)
images = mix @ basis
loader = DataLoader(TensorDataset(images), batch_size=50, shuffle=True)
model = AutoEncoder()
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
for epoch in range(12):
    total = 0.0
    for (xb,) in loader:
        loss = nn.functional.mse_loss(model(xb), xb)
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item() / len(loader)
    if epoch % 2 == 1:
        with torch.no_grad():
            black = (model(images) == 0).float().mean().item()
        print(f"epoch {epoch} loss {total:.5f} pixels exactly black {black:.3f} variance of data {images.var(0).mean():.5f}")
