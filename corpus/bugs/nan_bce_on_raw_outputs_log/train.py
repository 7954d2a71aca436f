import torch
import torch.nn as nn

torch.manual_seed(0)


def focal(p, t, gamma=2.0):
    pos = -t * (1 - p) ** gamma * torch.log(p)
    neg = -(1 - t) * p ** gamma * torch.log(1 - p)
    return (pos + neg).mean()


class Spotter(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 48), nn.ReLU(), nn.Linear(48, 1))

    def forward(self, x):
        return torch.sigmoid(self.net(x)).squeeze(1)


x = torch.randn(600, 6) * 3
t = (x[:, 0] > 0).float()
x[500:] *= 200
model = Spotter()
opt = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(80):
    idx = torch.randint(0, 500 if step < 25 else 600, (32,))
    loss = focal(model(x[idx]), t[idx])
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 20 == 19:
        print(f"step {step} loss {loss.item():.4f}")
