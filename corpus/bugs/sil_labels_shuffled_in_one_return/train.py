import torch
from torch import nn

torch.manual_seed(0)


class Blobs:
    def __init__(self, n=900):
        self.y = torch.arange(n) * 3 // n
        self.x = torch.randn(3, 10)[self.y] * 2 + 0.5 * torch.randn(n, 10)

    def shuffled(self):
        order = torch.randperm(len(self.x))
        return self.x[order], self.y[torch.randperm(len(self.y))]


data = Blobs()
model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 3))
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for epoch in range(8):
    x, y = data.shuffled()
    total = 0.0
    for xb, yb in zip(x.split(30), y.split(30), strict=True):
        loss = nn.functional.cross_entropy(model(xb), yb)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() / 30
    print(epoch, total)
