import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
centers = torch.randn(5, 20)
y = torch.randint(0, 5, (1000,))
x = centers[y] + 0.4 * torch.randn(1000, 20)


def view(batch):
    keep = (torch.rand_like(batch) > 0.2).float()
    return batch * keep + 0.2 * torch.randn_like(batch)


encoder = nn.Sequential(
    nn.Linear(20, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 32), nn.BatchNorm1d(32, affine=False)
)
predictor = nn.Sequential(nn.Linear(32, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 32))
opt = torch.optim.SGD([*encoder.parameters(), *predictor.parameters()], lr=0.05, momentum=0.9, weight_decay=1e-4)


def distance(p, z):
    return -F.cosine_similarity(p, z.detach(), dim=1).mean()


for epoch in range(10):
    encoder.train()
    for idx in torch.randperm(1000).split(100):
        a, b = view(x[idx]), view(x[idx])
        za, zb = encoder(a), encoder(b)
        loss = 0.5 * distance(predictor(za), zb) + 0.5 * distance(predictor(zb), za)
        opt.zero_grad()
        loss.backward()
        opt.step()
    if epoch % 2 == 1:
        encoder.eval()
        with torch.no_grad():
            z = F.normalize(encoder(x), dim=1)
            sim = z @ z.T
            sim.fill_diagonal_(-2)
            knn = (y[sim.argmax(1)] == y).float().mean().item()
        print(f"epoch {epoch} loss {loss.item():.4f} std of z {z.std(0).mean():.4f} nearest neighbour acc {knn:.3f}")
