import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)


class Tower(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(d, 32), nn.ReLU(), nn.Linear(32, 16))

    def forward(self, x):
        return F.normalize(self.net(x), dim=1)


class Clip(nn.Module):
    def __init__(self):
        super().__init__()
        self.image, self.text = Tower(12), Tower(8)

    def forward(self, a, b):
        return self.image(a) @ self.text(b).T / 0.1


mix_a, mix_b = torch.randn(6, 12), torch.randn(6, 8)
model = Clip()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for step in range(150):
    z = torch.randn(48, 6)
    logits = model(z @ mix_a, z @ mix_b)
    labels = torch.arange(48)
    loss = (F.cross_entropy(logits, labels) + F.cross_entropy(logits.T, labels)) / 2
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 30 == 0:
        print(step, loss.item())
