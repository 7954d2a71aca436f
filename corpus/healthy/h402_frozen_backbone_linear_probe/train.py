import torch
import torch.nn as nn

torch.manual_seed(0)


def make_backbone():
    return nn.Sequential(
        nn.Conv2d(1, 12, 3, padding=1), nn.BatchNorm2d(12), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(12, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
    )


def make(protos, n):
    y = torch.randint(0, len(protos), (n,))
    return protos[y] + 0.7 * torch.randn(n, 1, 10, 10), y


protos = torch.randn(8, 1, 10, 10)
backbone = make_backbone()
pre_head = nn.Linear(96, 8)
opt = torch.optim.Adam([*backbone.parameters(), *pre_head.parameters()], lr=3e-3)
x, y = make(protos, 512)
for epoch in range(4):
    for idx in torch.randperm(512).split(32):
        loss = nn.functional.cross_entropy(pre_head(backbone(x[idx])), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"pretrain epoch {epoch} loss {loss.item():.4f}")

backbone.eval()
for p in backbone.parameters():
    p.requires_grad = False
head = nn.Linear(96, 2)
opt = torch.optim.AdamW(head.parameters(), lr=1e-2, weight_decay=1e-2)
x, y = make(protos, 400)
y = (y >= 4).long()
for epoch in range(6):
    for idx in torch.randperm(300).split(30):
        with torch.no_grad():
            feats = backbone(x[idx])
        loss = nn.functional.cross_entropy(head(feats), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
    with torch.no_grad():
        acc = (head(backbone(x[300:])).argmax(1) == y[300:]).float().mean().item()
    print(f"probe epoch {epoch} loss {loss.item():.4f} val acc {acc:.3f}")
