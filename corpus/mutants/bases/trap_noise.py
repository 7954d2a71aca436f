"""A frozen backbone with a trained head on labels of which 40 % are wrong, in batches of 4; then random labels on purpose."""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(4)
backbone = nn.Sequential(nn.Linear(16, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU())
for p in backbone.parameters():
    p.requires_grad_(False)
backbone.eval()
head = nn.Linear(128, 5)
x = torch.randn(1500, 16)
y = (x @ torch.randn(16, 5)).argmax(1)
noisy = torch.where(torch.rand(1500) < 0.4, torch.randint(0, 5, (1500,)), y)
opt = torch.optim.SGD(head.parameters(), lr=0.02, momentum=0.9)
for epoch in range(3):
    for rows in torch.randperm(1200).split(4):
        with torch.no_grad():
            h = backbone(x[rows])
        loss = F.cross_entropy(head(h), noisy[rows])
        opt.zero_grad()
        loss.backward()
        opt.step()
with torch.no_grad():
    acc = (head(backbone(x[1200:])).argmax(1) == y[1200:]).float().mean()
print(f"final accuracy: {acc:.3f}")
