import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
t = torch.arange(6001).float()
level = torch.sin(0.05 * t) + 0.5 * torch.sin(0.21 * t + 1) + 0.02 * torch.randn(6001)
x = level[:-1].view(120, 50, 1)
y = level[1:].view(120, 50, 1)
loader = DataLoader(TensorDataset(x, y), batch_size=1, shuffle=False)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(1, 24, batch_first=True)
        self.fc = nn.Linear(24, 1)

    def forward(self, x, h):
        out, h = self.gru(x, h)
        return x + self.fc(out), h


model = Model()
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
for epoch in range(6):
    h, total = None, 0.0
    for xb, yb in loader:
        pred, h = model(xb, h)
        h = h.detach()
        loss = nn.functional.mse_loss(pred, yb)
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item() / len(loader)
    print(f"epoch {epoch} loss {total:.5f}")
