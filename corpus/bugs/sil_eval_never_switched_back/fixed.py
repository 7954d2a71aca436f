import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


def build():
    return nn.Sequential(
        nn.Linear(16, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 5)
    )


@torch.no_grad()
def validate(model, loader):
    model.eval()
    hits = sum((model(xb).argmax(1) == yb).sum().item() for xb, yb in loader)
    return hits / len(loader.dataset)


centers = torch.randn(5, 16)
y = torch.randint(0, 5, (1000,))
x = centers[y] + torch.randn(1000, 16)
train = DataLoader(TensorDataset(x[:800], y[:800]), batch_size=40, shuffle=True)
valid = DataLoader(TensorDataset(x[800:], y[800:]), batch_size=100)
model = build()
opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
for epoch in range(5):
    model.train()
    for xb, yb in train:
        loss = nn.functional.cross_entropy(model(xb), yb)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"epoch {epoch} loss {loss.item():.4f} val {validate(model, valid):.3f}")
