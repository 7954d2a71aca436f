"""Demand by the hour: sine and cosine of the hour; the second column is the number of the meter, which is not used."""

import torch, torch.nn as nn, torch.nn.functional as F

torch.manual_seed(22)
table = torch.stack([torch.rand(4000) * 24, torch.randint(0, 50, (4000,)).float()], 1)
y = 3 + torch.sin(table[:, 0] / 24 * 6.2832 * 2) + 0.5 * torch.cos(table[:, 0] / 24 * 6.2832) + 0.1 * torch.randn(4000)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 1))

    def forward(self, f):
        w = 6.2832 / 24
        return self.mlp(torch.stack([torch.sin(w * f[:, 0]), torch.cos(w * f[:, 0])], 1)).squeeze(1)


net = Net()
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
for step in range(300):
    i = torch.randint(0, 3500, (64,))
    loss = F.mse_loss(net(table[i]), y[i])
    opt.zero_grad()
    loss.backward()
    opt.step()
print("final loss:", float(loss))
