import warnings

import torch
import torch.nn as nn

warnings.filterwarnings("ignore")
torch.manual_seed(0)


class Regressor(nn.Module):
    def __init__(self, features=6):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(features, 32), nn.Tanh(), nn.Linear(32, 1))

    def forward(self, x):
        return self.net(x)


x = torch.randn(1024, 6)
w = torch.randn(6)
y = x @ w + 0.1 * torch.randn(1024)
model = Regressor()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for epoch in range(8):
    running = 0.0
    for idx in torch.randperm(1024).split(64):
        pred = model(x[idx])
        loss = ((pred.squeeze(1) - y[idx]) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        running += loss.item() / 16
    print(f"epoch {epoch} mse {running:.4f}")
