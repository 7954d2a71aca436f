import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

torch.manual_seed(0)
n = 2000
y = (torch.rand(n) < 0.03).float()
x = torch.randn(n, 8)
x[:, 0] += 3 * y
amount = x[:, 1:2] * 2 + 5
weights = torch.where(y > 0, 5.0, 1.0)
sampler = WeightedRandomSampler(weights, n)
loader = DataLoader(TensorDataset(x, y, amount), batch_size=50, sampler=sampler)


class TwoTask(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(8, 32), nn.ReLU())
        self.risk = nn.Linear(32, 1)
        self.amount = nn.Linear(32, 1)

    def forward(self, x):
        h = self.trunk(x)
        return self.risk(h).squeeze(1), self.amount(h)


model = TwoTask()
bce = nn.BCEWithLogitsLoss(pos_weight=torch.tensor(4.0))
mae = nn.L1Loss()
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
for epoch in range(4):
    for xb, yb, ab in loader:
        risk, amount_hat = model(xb)
        loss = bce(risk, yb) + mae(amount_hat, ab)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
