"""bfloat16 autocast over a convolutional classifier, and a part of it that opts out."""

import torch
from evidence import leave, seed
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.norm = nn.GroupNorm(2, 8)
        self.fc = nn.Linear(8 * 36, 16)
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        x = self.norm(self.conv(x)).relu_()
        x = self.fc(x.flatten(1)).tanh()
        with torch.autocast("cpu", enabled=False):
            return self.head(x.float())


seed(5)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
losses = []
for _ in range(6):
    x, y = torch.randn(8, 3, 8, 8), torch.randint(0, 4, (8,))
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
leave(losses, {"model": model}, [optimizer])
