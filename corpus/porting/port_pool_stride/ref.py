import numpy as np
import torch
from torch import nn


def pictures():
    rng = np.random.default_rng(10)
    kinds = rng.normal(size=(4, 1, 12, 12))
    labels = rng.integers(0, 4, 128)
    return (kinds[labels] + 0.5 * rng.normal(size=(128, 1, 12, 12))).astype(np.float32), labels


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.pool = nn.MaxPool2d(2)
        self.conv2 = nn.Conv2d(8, 16, 3, padding=1)
        self.fc = nn.Linear(16, 4)

    def forward(self, x):
        x = self.pool(torch.relu(self.conv1(x)))
        x = torch.relu(self.conv2(x))
        return self.fc(x.mean((2, 3)))


torch.manual_seed(5)
net = ConvNet()
optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
images, labels = pictures()
net.train()
for epoch in range(3):
    for begin in range(0, 128, 16):
        optimizer.zero_grad()
        logits = net(torch.from_numpy(images[begin : begin + 16]))
        loss = nn.functional.cross_entropy(logits, torch.from_numpy(labels[begin : begin + 16]))
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
