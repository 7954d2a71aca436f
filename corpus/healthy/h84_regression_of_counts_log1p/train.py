import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset, random_split

torch.manual_seed(0)
x = torch.cat([torch.rand(800, 3) * 500, torch.rand(800, 3), torch.randint(0, 2, (800, 4)).float()], 1)
counts = (x[:, 0] * 0.1 + 50 * x[:, 3] * x[:, 6]).floor()
data = TensorDataset(x, torch.log1p(counts))
train, val = random_split(data, [640, 160], generator=torch.Generator().manual_seed(0))
model = nn.Sequential(nn.BatchNorm1d(10), nn.Linear(10, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 1), nn.Softplus())
opt = torch.optim.AdamW(model.parameters(), lr=5e-3)
plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, patience=2, factor=0.5)
for epoch in range(8):
    model.train()
    for xb, yb in DataLoader(train, batch_size=64, shuffle=True, drop_last=True):
        loss = nn.functional.huber_loss(model(xb).squeeze(1), yb)
        opt.zero_grad()
        loss.backward()
        opt.step()
    model.eval()
    with torch.inference_mode():
        total = sum(nn.functional.huber_loss(model(xb).squeeze(1), yb, reduction="sum").item() for xb, yb in DataLoader(val, batch_size=80))
    plateau.step(total / 160)
    print(f"epoch {epoch} val {total / 160:.4f}")
