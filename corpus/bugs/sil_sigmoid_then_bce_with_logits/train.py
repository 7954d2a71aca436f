import torch
import torch.nn as nn

torch.manual_seed(0)


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(14, 32), nn.ReLU(), nn.Linear(32, 1))
        self.sigmoid = nn.Sigmoid()

    def forward(self, x):
        return self.sigmoid(self.body(x))


x = torch.randn(900, 14)
y = (x[:, 0] + x[:, 1] > 0.5).float().unsqueeze(1)
model = Detector()
criterion = nn.BCEWithLogitsLoss()
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
for epoch in range(6):
    for idx in torch.randperm(900).split(45):
        loss = criterion(model(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
