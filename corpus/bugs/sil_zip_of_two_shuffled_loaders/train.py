import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
centers = torch.randn(4, 10) * 2
y = torch.randint(0, 4, (800,))
x = centers[y] + torch.randn(800, 10)
images = DataLoader(TensorDataset(x), batch_size=40, shuffle=True)
labels = DataLoader(TensorDataset(y), batch_size=40, shuffle=True)
model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 4))
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
for epoch in range(6):
    for (xb,), (yb,) in zip(images, labels):
        loss = nn.functional.cross_entropy(model(xb), yb)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
