# pattern source: deep-voice/soundbay#49, PyTorch forum: how to handle imbalanced classes (11264)
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

torch.manual_seed(0)
centers = torch.randn(4, 10)


def draw(n, prior):
    y = torch.multinomial(torch.tensor(prior), n, replacement=True)
    return centers[y] + 0.8 * torch.randn(n, 10), y


x, y = draw(1200, [0.7, 0.2, 0.07, 0.03])
xv, yv = draw(600, [0.25, 0.25, 0.25, 0.25])
counts = torch.bincount(y, minlength=4).float()
class_weights = counts.sum() / counts
sampler = WeightedRandomSampler(class_weights, num_samples=len(y), replacement=True)
loader = DataLoader(TensorDataset(x, y), batch_size=40, sampler=sampler)
model = nn.Sequential(nn.Linear(10, 48), nn.ReLU(), nn.Linear(48, 4))
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
loss_fn = nn.CrossEntropyLoss()
for epoch in range(6):
    running = 0.0
    for xb, yb in loader:
        opt.zero_grad()
        loss = loss_fn(model(xb), yb)
        loss.backward()
        opt.step()
        running += loss.item()
    with torch.no_grad():
        acc = (model(xv).argmax(1) == yv).float().mean().item()
    print(f"epoch {epoch} loss {running / len(loader):.4f} balanced val acc {acc:.3f}")
