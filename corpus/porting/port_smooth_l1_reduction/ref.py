import numpy as np
import torch
from torch import nn


def boxes():
    rng = np.random.default_rng(9)
    features = rng.normal(size=(160, 20)).astype(np.float32)
    return features, (features @ rng.normal(size=(20, 4)) * 0.3).astype(np.float32)


class Boxes(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(20, 32)
        self.fc2 = nn.Linear(32, 4)

    def forward(self, x):
        return self.fc2(torch.relu(self.fc1(x)))


torch.manual_seed(4)
net = Boxes()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
criterion = nn.SmoothL1Loss()
features, targets = boxes()
net.train()
for epoch in range(3):
    for begin in range(0, 160, 16):
        optimizer.zero_grad()
        loss = criterion(net(torch.from_numpy(features[begin : begin + 16])), torch.from_numpy(targets[begin : begin + 16]))
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
