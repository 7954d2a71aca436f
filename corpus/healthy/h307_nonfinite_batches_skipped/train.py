import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(6)


class Readings(Dataset):
    """telemetry with some dropped packets, kept as NaN"""

    def __init__(self, n=1200):
        g = torch.Generator().manual_seed(6)
        self.x = torch.randn(n, 10, generator=g)
        self.y = self.x[:, :3].sum(1) + 0.1 * torch.randn(n, generator=g)
        self.x[torch.randint(0, n, (4,), generator=g), 7] = float("nan")

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


model = nn.Sequential(nn.Linear(10, 48), nn.ReLU(), nn.Linear(48, 1))
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
loader = DataLoader(Readings(), batch_size=24, shuffle=True)
skipped = 0
for epoch in range(3):
    total = count = 0
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x).squeeze(1), y)
        if not torch.isfinite(loss):
            skipped += 1
            continue
        opt.zero_grad()
        loss.backward()
        opt.step()
        total, count = total + loss.item(), count + 1
    print(f"epoch {epoch} loss {total / count:.4f} skipped {skipped}")
