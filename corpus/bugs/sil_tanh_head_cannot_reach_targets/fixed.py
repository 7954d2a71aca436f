import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class AgeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(8, 32), nn.ReLU())
        self.head = nn.Sequential(nn.Linear(32, 1))

    def forward(self, x):
        return self.head(self.features(x)).squeeze(1)


x = torch.rand(800, 8)
age = 20 + 10 * x[:, 0] + 10 * x[:, 1]
model = AgeNet()
opt = torch.optim.Adam(model.parameters(), lr=1e-2)
for epoch in range(6):
    for xb, yb in DataLoader(TensorDataset(x, age), batch_size=40, shuffle=True):
        loss = nn.functional.l1_loss(model(xb), yb)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
