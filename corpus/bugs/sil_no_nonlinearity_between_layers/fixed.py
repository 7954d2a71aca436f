# pattern source: nutonomy/nuscenes-devkit#728, Nota-NetsPresso/netspresso-trainer#320, pytorch/pytorch#139667
import torch
import torch.nn as nn


class Net(nn.Module):
    def __init__(self, n_in=2, hidden=32, n_out=3):
        super().__init__()
        self.fc1 = nn.Linear(n_in, hidden)
        self.fc2 = nn.Linear(hidden, hidden)
        self.fc3 = nn.Linear(hidden, n_out)
        self.relu = nn.ReLU()

    def forward(self, x):
        x = self.relu(self.fc1(x))
        x = self.relu(self.fc2(x))
        return self.fc3(x)


def rings(n):
    y = torch.randint(0, 3, (n,))
    radius = 0.5 + y + 0.15 * torch.randn(n)
    angle = 6.2832 * torch.rand(n)
    return torch.stack([radius * angle.cos(), radius * angle.sin()], 1), y


def train(model, x, y, epochs=10):
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    crit = nn.CrossEntropyLoss()
    for epoch in range(epochs):
        total, seen = 0.0, 0
        for idx in torch.randperm(len(x)).split(50):
            opt.zero_grad()
            loss = crit(model(x[idx]), y[idx])
            loss.backward()
            opt.step()
            total, seen = total + loss.item(), seen + 1
        acc = (model(x).argmax(1) == y).float().mean().item()
        print(f"epoch {epoch} loss {total / seen:.4f} acc {acc:.3f}")


torch.manual_seed(0)
train(Net(), *rings(1000))
