import torch
import torch.nn as nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(12, 64)
        self.mid = nn.Linear(64, 64)
        self.head = nn.Linear(64, 3)

    def forward(self, x):
        return self.head(torch.relu(self.mid(torch.relu(self.stem(x)))))


def batch(n, shift):
    x = torch.randn(n, 12)
    return x, (x[:, shift:shift + 3] + 0.5 * x[:, 6:9]).argmax(1)


model = Net()
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(200):
    x, y = batch(128, 0)
    loss = nn.functional.cross_entropy(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(f"source task loss {loss.item():.4f}")

model.head = nn.Linear(64, 3)
model.stem.requires_grad_(False)
model.mid.requires_grad_(False)
opt = torch.optim.Adam(model.head.parameters(), lr=1e-2)
for epoch in range(9):
    if epoch == 2:
        model.mid.requires_grad_(True)
        opt.add_param_group({"params": model.mid.parameters(), "lr": 3e-3})
    if epoch == 4:
        model.stem.requires_grad_(True)
        opt.add_param_group({"params": model.stem.parameters(), "lr": 1e-3})
    for _ in range(60):
        x, y = batch(128, 3)
        loss = nn.functional.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"epoch {epoch} groups {len(opt.param_groups)} loss {loss.item():.4f}")
