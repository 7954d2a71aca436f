import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class Bayesian(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(6, 64), nn.Linear(64, 1)
        self.drop = nn.Dropout(0.2)
        self.norm = nn.BatchNorm1d(64)

    def forward(self, x):
        return self.fc2(self.drop(torch.relu(self.norm(self.fc1(x)))))


def enable_dropout(model):
    for m in model.modules():
        if isinstance(m, nn.Dropout):
            m.train()


x = torch.randn(600, 6)
y = x[:, :1] * 2 - x[:, 1:2] + 0.1 * torch.randn(600, 1)
loader = DataLoader(TensorDataset(x[:500], y[:500]), batch_size=50, shuffle=True)
model = Bayesian()
opt = torch.optim.Adam(model.parameters(), lr=5e-3)
for epoch in range(5):
    model.train()
    for xb, yb in loader:
        loss = nn.functional.mse_loss(model(xb), yb)
        opt.zero_grad()
        loss.backward()
        opt.step()
    model.eval()
    enable_dropout(model)
    with torch.no_grad():
        draws = torch.stack([model(x[500:]) for _ in range(10)])
    print(f"epoch {epoch} rmse {(draws.mean(0) - y[500:]).pow(2).mean().sqrt():.3f} spread {draws.std(0).mean():.3f}")
