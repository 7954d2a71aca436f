import numpy as np
import torch
from torch import nn


def images():
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 4, 240)
    pixels = rng.normal(0, 0.6, (240, 3, 12, 12)).astype(np.float32)
    for k, label in enumerate(labels):
        pixels[k, :, 3 * label : 3 * label + 3] += 1.0
    return pixels, labels


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3)
        self.bn1 = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 16, 3, padding=1)
        self.act = nn.ReLU()
        self.fc = nn.Linear(16, 4)

    def forward(self, x):
        x = self.act(self.bn1(self.conv1(x)))
        x = self.act(self.conv2(x))
        return self.fc(x.mean((2, 3)))


torch.manual_seed(0)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.05)
model.train()
loss_fn = nn.CrossEntropyLoss()
pixels, labels = images()
for epoch in range(3):
    order = np.random.permutation(len(pixels))
    for begin in range(0, len(pixels), 40):
        chosen = order[begin : begin + 40]
        optimizer.zero_grad()
        loss = loss_fn(model(torch.from_numpy(pixels[chosen])), torch.from_numpy(labels[chosen]))
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
