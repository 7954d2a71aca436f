import torch
import torch.nn as nn

torch.manual_seed(0)


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU())
        self.head = nn.Sequential(nn.Linear(16, 1), nn.Softmax(dim=1))

    def forward(self, x):
        return self.head(self.body(x))


x = torch.randn(800, 12)
y = (x[:, 0] > x[:, 1]).float().unsqueeze(1)
model = Detector()
criterion = nn.BCELoss()
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
for epoch in range(5):
    for i in torch.randperm(800).split(40):
        loss = criterion(model(x[i]), y[i])
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
