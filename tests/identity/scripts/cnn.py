"""A residual CNN with batch norm, dropout, in-place activations and `+=`, trained with SGD and a schedule, evaluated in between."""

import torch
from evidence import leave, seed
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width, out, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(width, out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.down = None if stride == 1 else nn.Sequential(nn.Conv2d(width, out, 1, stride), nn.BatchNorm2d(out))

    def forward(self, x):
        identity = x if self.down is None else self.down(x)
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.bn2(self.conv2(x))
        x += identity
        return self.relu(x)


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True))
        self.layers = nn.Sequential(Block(8, 8), Block(8, 16, 2), nn.Dropout2d(0.1))
        self.head = nn.Linear(16, 10)
        self.dropout = nn.Dropout(0.3)

    def forward(self, x):
        x = F.adaptive_avg_pool2d(self.layers(self.stem(x)), 1).flatten(1)
        return self.head(self.dropout(x))


seed(1)
model = ResNet()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4, nesterov=True)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 8)
criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
losses = []
for step in range(8):
    images, labels = torch.randn(8, 3, 12, 12), torch.randint(0, 10, (8,))
    optimizer.zero_grad()
    loss = criterion(model(images), labels)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    schedule.step()
    losses.append(loss.item())
    if step % 3 == 2:
        model.eval()
        with torch.no_grad():
            losses.append(criterion(model(torch.randn(4, 3, 12, 12)), labels[:4]).item())
        model.train()
leave(losses, {"model": model}, [optimizer])
