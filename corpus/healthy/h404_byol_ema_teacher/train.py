import copy
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(24, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 32))
        self.proj = nn.Sequential(nn.Linear(32, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 16))

    def forward(self, x):
        return self.proj(self.net(x))


def augment(x):
    return x + 0.4 * torch.randn_like(x)


def distance(p, z):
    return 2 - 2 * F.cosine_similarity(p, z.detach(), dim=1).mean()


centers = 1.5 * torch.randn(4, 24)
y = torch.randint(0, 4, (768,))
x = centers[y] + 0.8 * torch.randn(768, 24)
online = Encoder()
target = copy.deepcopy(online)
predictor = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 16))
opt = torch.optim.Adam([*online.parameters(), *predictor.parameters()], lr=2e-3)
for epoch in range(12):
    tot = 0.0
    for idx in torch.randperm(768).split(64):
        a, b = augment(x[idx]), augment(x[idx])
        with torch.no_grad():
            za, zb = target(a), target(b)
        loss = distance(predictor(online(a)), zb) + distance(predictor(online(b)), za)
        opt.zero_grad()
        loss.backward()
        opt.step()
        with torch.no_grad():
            for t, o in zip(target.parameters(), online.parameters()):
                t.lerp_(o, 0.03)
        tot += loss.item()
    if epoch % 3 == 2:
        online.eval()
        with torch.no_grad():
            f = F.normalize(online.net(x), dim=1)
        online.train()
        protos = F.normalize(torch.stack([f[:384][y[:384] == c].mean(0) for c in range(4)]), dim=1)
        acc = ((f[384:] @ protos.t()).argmax(1) == y[384:]).float().mean().item()
        print(f"epoch {epoch} loss {tot / 12:.4f} feature std {f.std(0).mean().item():.3f} probe acc {acc:.3f}")
