import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self, d, survive):
        super().__init__()
        self.norm, self.fc1, self.fc2 = nn.LayerNorm(d), nn.Linear(d, 2 * d), nn.Linear(2 * d, d)
        self.survive = survive

    def forward(self, x):
        if self.training:
            if torch.rand(()).item() > self.survive:
                return x
            return x + self.fc2(F.gelu(self.fc1(self.norm(x)))) / self.survive
        return x + self.fc2(F.gelu(self.fc1(self.norm(x))))


class Net(nn.Module):
    def __init__(self, d=32, depth=6):
        super().__init__()
        self.stem = nn.Linear(12, d)
        self.blocks = nn.Sequential(*[Block(d, 1 - 0.5 * i / (depth - 1)) for i in range(depth)])
        self.head = nn.Linear(d, 4)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)))


x = torch.randn(1500, 12)
y = ((x[:, 0] * x[:, 1] > 0).long() * 2 + (x[:, 2] + x[:, 3] > 0).long())
model = Net()
opt = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.05)
for epoch in range(10):
    model.train()
    total = 0.0
    for idx in torch.randperm(1200).split(40):
        loss = F.cross_entropy(model(x[idx]), y[idx])
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        total += loss.item() / 30
    model.eval()
    with torch.no_grad():
        acc = (model(x[1200:]).argmax(1) == y[1200:]).float().mean().item()
    print(f"epoch {epoch} loss {total:.4f} val acc {acc:.3f}")
