import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(3)


class TwoViews(Dataset):
    def __init__(self, n=512):
        self.x = torch.randn(8, 16)[torch.randint(0, 8, (n,))] + 0.3 * torch.randn(n, 16)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i] + 0.1 * torch.randn(16), self.x[i] + 0.1 * torch.randn(16)


class Siamese(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 32))
        self.predictor = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 32))

    def forward(self, a, b):
        za, zb = self.encoder(a), self.encoder(b)
        return self.predictor(za), self.predictor(zb), za, zb


model = Siamese()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
loader = DataLoader(TwoViews(), batch_size=64, shuffle=True)
for epoch in range(20):
    for a, b in loader:
        pa, pb, za, zb = model(a, b)
        loss = nn.functional.mse_loss(pa, zb) + nn.functional.mse_loss(pb, za)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.6f} spread {za.std(0).mean().item():.6f}")
