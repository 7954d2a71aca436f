import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)


class Table(Dataset):
    def __init__(self, rows=500, columns=8):
        raw = torch.randn(rows, columns) * torch.rand(columns) * 10
        raw[:, 5] = 3.0
        self.y = raw[:, 0] - 2 * raw[:, 1]
        self.x = (raw - raw.mean(0)) / raw.std(0).clamp(min=1e-6)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for epoch in range(4):
    for x, y in DataLoader(Table(), batch_size=50, shuffle=True):
        loss = nn.functional.mse_loss(model(x).squeeze(1), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
