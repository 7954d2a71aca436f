import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)


class Windows(Dataset):
    def __init__(self, series, size):
        self.series, self.size = series, size

    def __len__(self):
        return len(self.series)

    def __getitem__(self, i):
        return self.series[i : i + self.size], self.series[i + self.size]


series = torch.sin(torch.arange(0, 60, 0.1))
loader = DataLoader(Windows(series, 20), batch_size=32, shuffle=True, num_workers=2)
model = nn.Sequential(nn.Linear(20, 16), nn.Tanh(), nn.Linear(16, 1))
opt = torch.optim.Adam(model.parameters(), lr=1e-2)
for epoch in range(2):
    for xb, yb in loader:
        loss = nn.functional.mse_loss(model(xb).squeeze(1), yb)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
