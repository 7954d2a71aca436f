import torch
from torch import nn

torch.manual_seed(0)


class Series(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(1, 16, batch_first=True)
        self.out = nn.Linear(16, 1)
        self.state = None

    def forward(self, x):
        h, self.state = self.gru(x, self.state)
        return self.out(h)


wave = torch.sin(torch.arange(0, 401) * 0.2).repeat(8, 1).unsqueeze(-1)
model = Series()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for start in range(0, 400, 20):
    x, y = wave[:, start : start + 20], wave[:, start + 1 : start + 21]
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(start, loss.item())
