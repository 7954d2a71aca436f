import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
centers = torch.randn(5, 20) * 2
y = torch.randint(0, 5, (1000,))
x = centers[y] + torch.randn(1000, 20)
x = x[torch.randperm(1000)]
y = y[torch.randperm(1000)]
loader = DataLoader(TensorDataset(x, y), batch_size=50)
model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 5))
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
for epoch in range(6):
    for xb, yb in loader:
        loss = nn.functional.cross_entropy(model(xb), yb)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
