# pattern source: lightly-ai/lightly#1438, pytorch/pytorch#86590, pgniewko/gt-pyg#112
import torch
import torch.nn as nn

torch.manual_seed(0)
backbone = nn.Sequential(nn.Linear(16, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU())
heads = nn.ModuleDict({"source": nn.Linear(32, 5), "target": nn.Linear(32, 2)})


def source_batch(n):
    x = torch.randn(n, 16)
    return x, x[:, :5].argmax(1)


def target_batch(n):
    x = 2.5 * torch.randn(n, 16) + 4.0
    return x, (x[:, :5].argmax(1) < 2).long()


def accuracy(task, batch):
    backbone.eval()
    with torch.no_grad():
        x, y = batch(1000)
        return (heads[task](backbone(x)).argmax(1) == y).float().mean().item()


opt = torch.optim.Adam([*backbone.parameters(), *heads["source"].parameters()], lr=3e-3)
for step in range(300):
    x, y = source_batch(128)
    loss = nn.functional.cross_entropy(heads["source"](backbone(x)), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(f"source loss {loss.item():.4f} source acc {accuracy('source', source_batch):.3f}")

for p in backbone.parameters():
    p.requires_grad = False
opt = torch.optim.Adam(heads["target"].parameters(), lr=1e-2)
for epoch in range(5):
    backbone.eval()
    for _ in range(40):
        x, y = target_batch(128)
        loss = nn.functional.cross_entropy(heads["target"](backbone(x)), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"epoch {epoch} target loss {loss.item():.4f} source acc {accuracy('source', source_batch):.3f}")
