import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


def init(m):
    if isinstance(m, nn.Linear):
        nn.init.kaiming_normal_(m.weight)
        nn.init.zeros_(m.bias)


x = torch.randn(960, 14)
y = (x[:, :7].sum(1) > x[:, 7:].sum(1)).long()
loader = DataLoader(TensorDataset(x, y), batch_size=48, shuffle=True)
net = nn.Sequential(nn.Linear(14, 40), nn.ReLU(), nn.Linear(40, 2))
opt = torch.optim.Adam(net.parameters(), lr=3e-3)
net.apply(init)
for epoch in range(8):
    net.train()
    net.apply(init)
    total = 0.0
    for xb, yb in loader:
        loss = nn.functional.cross_entropy(net(xb), yb)
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item()
    print(f"epoch {epoch} loss {total / len(loader):.4f}")
