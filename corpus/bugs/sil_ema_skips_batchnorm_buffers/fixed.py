# pattern source: CuriousAI/mean-teacher#9, facebookresearch/moco#70, FlyreelAI/sesemi#36, pytorch/ignite#2590
import copy
import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelEMA:
    def __init__(self, model, decay=0.97):
        self.module = copy.deepcopy(model).eval()
        self.decay = decay

    @torch.no_grad()
    def update(self, model):
        for ema_p, p in zip(self.module.parameters(), model.parameters()):
            ema_p.lerp_(p, 1 - self.decay)
        for ema_b, b in zip(self.module.buffers(), model.buffers()):
            ema_b.copy_(b)


def evaluate(model, x, y):
    model.eval()
    with torch.no_grad():
        return (model(x).argmax(1) == y).float().mean().item()


torch.manual_seed(0)
centers = torch.randn(6, 16)
y = torch.randint(0, 6, (1200,))
x = 4 + 3 * (centers[y] + torch.randn(1200, 16))
model = nn.Sequential(
    nn.Linear(16, 64), nn.BatchNorm1d(64), nn.ReLU(),
    nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 6),
)
ema = ModelEMA(model)
opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
for epoch in range(8):
    model.train()
    for idx in torch.randperm(1000).split(50):
        loss = F.cross_entropy(model(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        ema.update(model)
    a, b = evaluate(model, x[1000:], y[1000:]), evaluate(ema.module, x[1000:], y[1000:])
    print(f"epoch {epoch} loss {loss.item():.4f} val acc {a:.3f} ema val acc {b:.3f}")
