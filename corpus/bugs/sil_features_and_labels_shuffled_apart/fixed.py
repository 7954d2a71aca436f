# pattern source: xudonmao/VMT#1, Borda/kaggle_image-classify#12, atong01/conditional-flow-matching#172
import torch
import torch.nn as nn

torch.manual_seed(0)


def epoch_batches(x, y, size):
    n = len(x)
    order = torch.randperm(n)
    x, y = x[order], y[order]
    for start in range(0, n, size):
        yield x[start:start + size], y[start:start + size]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 12, 3, stride=2, padding=1)
        self.conv2 = nn.Conv2d(12, 24, 3, stride=2, padding=1)
        self.fc = nn.Linear(24, 4)

    def forward(self, x):
        x = torch.relu(self.conv1(x))
        x = torch.relu(self.conv2(x))
        return self.fc(x.mean((2, 3)))


y = torch.randint(0, 4, (960,))
x = 0.7 * torch.randn(960, 3, 10, 10)
colours = torch.tensor([[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0]])
x += colours[y][:, :, None, None]
xt, yt, xv, yv = x[:800], y[:800], x[800:], y[800:]
model = Net()
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
for epoch in range(8):
    total = 0.0
    for xb, yb in epoch_batches(xt, yt, 40):
        loss = nn.functional.cross_entropy(model(xb), yb)
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item() / 20
    acc = (model(xv).argmax(1) == yv).float().mean().item()
    print(f"epoch {epoch} loss {total:.4f} val acc {acc:.3f}")
