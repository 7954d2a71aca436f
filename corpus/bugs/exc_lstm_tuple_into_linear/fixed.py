import torch
from torch import nn

torch.manual_seed(0)


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(3, 16, batch_first=True)
        self.out = nn.Linear(16, 1)

    def forward(self, x):
        h, _ = self.lstm(x)
        return self.out(h)[:, -1]


x = torch.randn(200, 12, 3)
y = x.sum((1, 2), keepdim=True).squeeze(-1)
model = Forecaster()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(40):
    idx = torch.randint(0, 200, (32,))
    loss = nn.functional.mse_loss(model(x[idx]), y[idx])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
