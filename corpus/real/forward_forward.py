"""Layers that are trained one by one, each with its own optimizer and loss, and that vote on every label in the end."""

import torch
from fingerprint import report
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
CLASSES = 4


def with_label(x, label):
    return torch.cat([F.one_hot(label, CLASSES).float(), x], 1)


class Layer(nn.Linear):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.optimizer = torch.optim.Adam(self.parameters(), lr=0.02)

    def forward(self, x):
        return super().forward(F.normalize(x, dim=1)).relu()

    def learn(self, right, wrong):
        margins = torch.cat([1 - self(right).square().mean(1), self(wrong).square().mean(1) - 1])
        loss = F.softplus(margins).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return self(right).detach(), self(wrong).detach()


class Net:
    """Not a module: it only holds some."""

    def __init__(self):
        self.layers = [Layer(CLASSES + 12, 48), Layer(48, 48)]

    def learn(self, x, y):
        other = (y + torch.randint(1, CLASSES, y.shape)) % CLASSES
        right, wrong = with_label(x, y), with_label(x, other)
        for layer in self.layers:
            right, wrong = layer.learn(right, wrong)

    def predict(self, x):
        votes = []
        for label in range(CLASSES):
            h = with_label(x, torch.full((len(x),), label))
            goodness = []
            for layer in self.layers:
                h = layer(h)
                goodness += [h.square().mean(1)]
            votes += [sum(goodness)]
        return torch.stack(votes, 1).argmax(1)


centres = torch.randn(CLASSES, 12)
labels = torch.randint(0, CLASSES, (512,))
inputs = centres[labels] + 0.3 * torch.randn(512, 12)
net = Net()
loader = DataLoader(TensorDataset(inputs, labels), batch_size=64, shuffle=True)
for epoch in range(10):
    for x, y in loader:
        net.learn(x, y)
    if epoch % 3 == 0:
        print(epoch, sum((net.predict(x) == y).sum().item() for x, y in loader))
report(*net.layers, *[layer.optimizer for layer in net.layers])
