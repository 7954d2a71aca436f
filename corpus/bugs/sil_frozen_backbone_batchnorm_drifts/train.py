# pattern source: pytorch/pytorch#86590, lightly-ai/lightly#1438, pgniewko/gt-pyg#112, speedinghzl/Pytorch-Deeplab#17
import torch
import torch.nn as nn

torch.manual_seed(0)


def make_backbone():
    return nn.Sequential(
        nn.Conv2d(1, 12, 3, padding=1), nn.BatchNorm2d(12), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(12, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
    )


class Detector(nn.Module):
    def __init__(self, backbone, k):
        super().__init__()
        self.backbone = backbone
        self.head = nn.Linear(96, k)

    def forward(self, x):
        return self.head(self.backbone(x))


def make(protos, n, scale=1.0, shift=0.0):
    y = torch.randint(0, len(protos), (n,))
    return scale * (protos[y] + 0.8 * torch.randn(n, 1, 10, 10)) + shift, y


def fit(model, params, x, y, epochs, freeze=False):
    opt = torch.optim.Adam(params, lr=3e-3)
    for epoch in range(epochs):
        model.train()
        for idx in torch.randperm(len(x)).split(32):
            loss = nn.functional.cross_entropy(model(x[idx]), y[idx])
            opt.zero_grad()
            loss.backward()
            opt.step()
        print(f"{'finetune' if freeze else 'pretrain'} epoch {epoch} loss {loss.item():.4f}")


def accuracy(model, x, y):
    model.eval()
    with torch.no_grad():
        return (model(x).argmax(1) == y).float().mean().item()


old, new = torch.randn(6, 1, 10, 10), torch.randn(4, 1, 10, 10)
xa, ya = make(old, 512)
source = Detector(make_backbone(), 6)
fit(source, source.parameters(), xa, ya, 6)
print(f"old task acc {accuracy(source, xa, ya):.3f}")

for p in source.backbone.parameters():
    p.requires_grad_(False)
target = Detector(source.backbone, 4)
xb, yb = make(new, 512, scale=2.0, shift=3.0)
fit(target, target.head.parameters(), xb, yb, 6, freeze=True)
print(f"new task acc {accuracy(target, xb, yb):.3f}, old task acc {accuracy(source, xa, ya):.3f}")
