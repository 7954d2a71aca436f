# pattern source: pytorch/pytorch#1738, Element-Research/rnn#252
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class ConvNet(nn.Module):
    def __init__(self, c=8, n_classes=5):
        super().__init__()
        self.stem = nn.Conv2d(1, c, 3, padding=1)
        self.conv1 = nn.Conv2d(c, c, 3, padding=1)
        self.conv2 = nn.Conv2d(c, c, 3, padding=1)
        self.conv3 = nn.Conv2d(c, c, 3, padding=1)
        self.bn1, self.bn2, self.bn3, self.bn4 = (nn.BatchNorm2d(c) for _ in range(4))
        self.fc = nn.Linear(c * 4, n_classes)

    def forward(self, x):
        x = F.relu(self.bn1(self.stem(x)))
        x = F.max_pool2d(x, 2)
        x = F.relu(self.bn2(self.conv1(x)))
        x = F.max_pool2d(x, 2)
        x = F.relu(self.bn3(self.conv2(x)))
        x = F.relu(self.bn4(self.conv3(x)))
        return self.fc(x.flatten(1))


protos = torch.randn(5, 1, 8, 8)
y = torch.randint(0, 5, (1000,))
x = 20 + 9 * (protos[y] + torch.randn(1000, 1, 8, 8))
train = DataLoader(TensorDataset(x[:800], y[:800]), batch_size=50, shuffle=True)
model = ConvNet()
opt = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
for epoch in range(6):
    model.train()
    total = 0.0
    for xb, yb in train:
        opt.zero_grad()
        loss = F.cross_entropy(model(xb), yb)
        loss.backward()
        opt.step()
        total += loss.item() / len(train)
    model.eval()
    with torch.no_grad():
        acc = (model(x[800:]).argmax(1) == y[800:]).float().mean().item()
        val_loss = F.cross_entropy(model(x[800:]), y[800:]).item()
    print(f"epoch {epoch} train loss {total:.4f} val loss {val_loss:.4f} val acc {acc:.3f}")
