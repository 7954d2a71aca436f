import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
ACCUMULATE = 4
centers = torch.randn(5, 12)
y = torch.randint(0, 5, (1000,))
x = centers[y] + 0.5 * torch.randn(1000, 12)
loader = DataLoader(TensorDataset(x, y), batch_size=10, shuffle=True)
model = nn.Sequential(nn.Linear(12, 48), nn.LayerNorm(48), nn.GELU(), nn.Linear(48, 5))
opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
for epoch in range(4):
    opt.zero_grad()
    for i, (xb, yb) in enumerate(loader):
        loss = nn.functional.cross_entropy(model(xb), yb)
        (loss / ACCUMULATE).backward()
        if (i + 1) % ACCUMULATE == 0 or i + 1 == len(loader):
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            opt.step()
            opt.zero_grad()
    print(f"epoch {epoch} loss {loss.item():.4f}")
