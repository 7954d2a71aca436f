import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(3)


class Backbone(nn.Module):
    def __init__(self, width=32, classes=100):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(20, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        return self.head(self.body(x))


def make_data(n=1000, classes=5):
    centers = torch.randn(classes, 20) * 1.5
    y = torch.randint(0, classes, (n,))
    return centers[y] + torch.randn(n, 20), y


x, y = make_data()
model = Backbone()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
model.head = nn.Linear(32, 5)
for epoch in range(6):
    for idx in torch.randperm(len(x)).split(50):
        loss = F.cross_entropy(model(x[idx]), y[idx])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
