import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
encoder = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 8))
triplet = nn.TripletMarginLoss(margin=0.2)
centers = torch.randn(10, 12) * 1.5
opt = torch.optim.Adam(encoder.parameters(), lr=1e-3)


def sample(labels):
    return centers[labels] + 0.6 * torch.randn(len(labels), 12)


for step in range(400):
    a = torch.randint(0, 10, (24,))
    n = (a + torch.randint(1, 10, (24,))) % 10
    emb = [F.normalize(encoder(sample(k)), dim=1) for k in (a, a, n)]
    loss = triplet(*emb)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 49:
        with torch.no_grad():
            y = torch.arange(10).repeat(30)
            e = F.normalize(encoder(sample(y)), dim=1)
            proto = torch.stack([e[y == k].mean(0) for k in range(10)])
            acc = ((e @ proto.T).argmax(1) == y).float().mean().item()
        print(f"step {step} loss {loss.item():.4f} nearest-prototype acc {acc:.3f}")
