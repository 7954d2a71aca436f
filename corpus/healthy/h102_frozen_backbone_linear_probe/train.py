import torch
import torch.nn as nn

torch.manual_seed(0)
backbone = nn.Sequential(nn.Linear(16, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU())
pretext = nn.Linear(32, 8)


def batch(n):
    x = torch.randn(n, 16)
    return x, x[:, :8].argmax(1)


opt = torch.optim.Adam([*backbone.parameters(), *pretext.parameters()], lr=5e-3)
for step in range(300):
    x, y = batch(128)
    loss = nn.functional.cross_entropy(pretext(backbone(x)), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 100 == 99:
        print(f"pretrain step {step} loss {loss.item():.4f}")

for p in backbone.parameters():
    p.requires_grad_(False)
backbone.eval()
head = nn.Linear(32, 2)
opt = torch.optim.Adam(head.parameters(), lr=1e-2)
for step in range(300):
    x, kind = batch(128)
    y = (kind >= 4).long()
    with torch.no_grad():
        features = backbone(x)
    loss = nn.functional.cross_entropy(head(features), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 60 == 59:
        x, kind = batch(500)
        acc = (head(backbone(x)).argmax(1) == (kind >= 4).long()).float().mean().item()
        print(f"probe step {step} loss {loss.item():.4f} acc {acc:.3f}")
