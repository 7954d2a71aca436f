import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Linear(16, 64), nn.BatchNorm1d(64), nn.ReLU())
        self.drop = nn.Dropout(0.5)
        self.out = nn.Linear(64, 5)

    def forward(self, x):
        return self.out(self.drop(self.stem(x)))


def train_epoch(model, loader, opt):
    model.train()
    for xb, yb in loader:
        loss = nn.functional.cross_entropy(model(xb), yb)
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


def evaluate(model, loader):
    model.eval()
    hits = 0
    with torch.no_grad():
        for xb, yb in loader:
            hits += (model(xb).argmax(1) == yb).sum().item()
    return hits / len(loader.dataset)


centers = torch.randn(5, 16)
y = torch.randint(0, 5, (1000,))
x = centers[y] + torch.randn(1000, 16)
train = DataLoader(TensorDataset(x[:800], y[:800]), batch_size=40, shuffle=True)
valid = DataLoader(TensorDataset(x[800:], y[800:]), batch_size=100)
model = Net()
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
for epoch in range(5):
    loss = train_epoch(model, train, opt)
    print(f"epoch {epoch} loss {loss:.4f} val {evaluate(model, valid):.3f}")
