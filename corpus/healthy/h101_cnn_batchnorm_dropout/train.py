import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 12, 3, padding=1, bias=False), nn.BatchNorm2d(12), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(12, 24, 3, padding=1, bias=False), nn.BatchNorm2d(24), nn.ReLU(), nn.AdaptiveMaxPool2d(1),
        )
        self.drop = nn.Dropout(0.3)
        self.fc = nn.Linear(24, 3)

    def forward(self, x):
        return self.fc(self.drop(self.features(x).flatten(1)))


def make(n):
    y = torch.multinomial(torch.tensor([0.8, 0.15, 0.05]), n, replacement=True)
    x = 0.5 * torch.randn(n, 1, 14, 14)
    for i, c in enumerate(y.tolist()):
        r, k = torch.randint(0, 9, (2,)).tolist()
        if c == 0:
            x[i, 0, r:r + 5, k] += 2
        elif c == 1:
            x[i, 0, r, k:k + 5] += 2
        else:
            x[i, 0, r:r + 4, k:k + 4] += 2
    return x, y


train, val = TensorDataset(*make(1200)), TensorDataset(*make(400))
loader = DataLoader(train, batch_size=40, shuffle=True, drop_last=True)
model = ConvNet()
criterion = nn.CrossEntropyLoss(weight=torch.tensor([0.4, 2.0, 5.0]))
opt = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-2)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 8)
for epoch in range(8):
    model.train()
    total = 0.0
    for x, y in loader:
        loss = criterion(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item() / len(loader)
    sched.step()
    model.eval()
    with torch.no_grad():
        x, y = val.tensors
        acc = (model(x).argmax(1) == y).float().mean().item()
    print(f"epoch {epoch} loss {total:.4f} val acc {acc:.3f}")
