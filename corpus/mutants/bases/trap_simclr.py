"""SimCLR-like contrastive learning on noisy views; both views in one batch, positives are n apart."""
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(2)
centers = 2 * torch.randn(10, 20)
y = torch.randint(0, 10, (1500,))
x = centers[y] + torch.randn(1500, 20)
loader = DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True, drop_last=True)
encoder = nn.Sequential(nn.Linear(20, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 32))
head = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 16))
optimizer = torch.optim.Adam([*encoder.parameters(), *head.parameters()], lr=2e-3, weight_decay=1e-6)


def view(x):
    return x * (torch.rand_like(x) > 0.2) + 0.3 * torch.randn_like(x)


for epoch in range(12):
    for batch, _ in loader:
        n = len(batch)
        z = F.normalize(head(encoder(torch.cat([view(batch), view(batch)]))), dim=1)
        sim = z @ z.T / 0.5
        sim.fill_diagonal_(-1e9)
        target = torch.cat([torch.arange(n) + n, torch.arange(n)])
        loss = F.cross_entropy(sim, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
encoder.eval()
with torch.no_grad():
    h = encoder(x)
    protos = torch.stack([h[y == k].mean(0) for k in range(10)])
    acc = (torch.cdist(h, protos).argmin(1) == y).float().mean()
print(f"final accuracy: {acc:.3f}")
