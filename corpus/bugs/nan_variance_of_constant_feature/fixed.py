import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


def load_table(n=500):
    x = torch.randn(n, 7)
    x[:, 3] = 4.0
    y = (x[:, 0] - x[:, 1] > 0).float()
    return x, y


def standardise(x):
    return (x - x.mean(0)) / (x.std(0) + 1e-8)


x, y = load_table()
loader = DataLoader(TensorDataset(standardise(x), y), batch_size=25, shuffle=True)
model = nn.Sequential(nn.Linear(7, 16), nn.ReLU(), nn.Linear(16, 1))
opt = torch.optim.Adam(model.parameters(), lr=1e-2)
for epoch in range(4):
    for xb, yb in loader:
        loss = nn.functional.binary_cross_entropy_with_logits(model(xb).squeeze(1), yb)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
