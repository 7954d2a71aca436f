# pattern source: fffasttime/MRFI#5, pytorch/pytorch#46386
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


def rss_mb():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * 4096 / 2**20


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(32, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU())
        self.head = nn.Linear(512, 4)

    def forward(self, x):
        return self.head(self.backbone(x))


def forward_with_features(model, x):
    feats = []
    handle = model.backbone.register_forward_hook(lambda m, inp, out: feats.append(out))
    logits = model(x)
    handle.remove()
    return logits, feats[0]


model = Net()
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
centers = torch.randn(4, 32) * 0.5
start = None
for step in range(60):
    yb = torch.randint(0, 4, (512,))
    xb = centers[yb] + torch.randn(512, 32)
    logits, feats = forward_with_features(model, xb)
    loss = F.cross_entropy(logits, yb) + 1e-4 * feats.pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step == 4:
        start = rss_mb()
    if step % 10 == 9:
        print(f"step {step} loss {loss.item():.4f} rss growth MB {rss_mb() - start:.0f} hooks {len(model.backbone._forward_hooks)}")
