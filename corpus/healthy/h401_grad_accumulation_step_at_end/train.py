import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
ACC = 4
centers = torch.randn(5, 14)
y = torch.randint(0, 5, (880,))
x = centers[y] + 0.9 * torch.randn(880, 14)
loader = DataLoader(TensorDataset(x[:720], y[:720]), batch_size=18, shuffle=True)
model = nn.Sequential(nn.Linear(14, 48), nn.LayerNorm(48), nn.ReLU(), nn.Dropout(0.1), nn.Linear(48, 5))
opt = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
opt.zero_grad()
for epoch in range(6):
    model.train()
    total = 0.0
    for i, (xb, yb) in enumerate(loader):
        loss = nn.functional.cross_entropy(model(xb), yb) / ACC
        loss.backward()
        total += loss.item() * ACC
        if (i + 1) % ACC == 0:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            opt.zero_grad()
    model.eval()
    with torch.no_grad():
        acc = (model(x[720:]).argmax(1) == y[720:]).float().mean().item()
    print(f"epoch {epoch} loss {total / len(loader):.4f} val acc {acc:.3f}")
