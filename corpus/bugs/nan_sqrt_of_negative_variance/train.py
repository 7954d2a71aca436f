import torch
import torch.nn as nn

torch.manual_seed(0)


class Standard(nn.Module):
    def forward(self, x):
        mean = x.mean(1, keepdim=True)
        var = (x * x).mean(1, keepdim=True) - mean * mean
        std = torch.sqrt(var)
        return (x - mean) / (std + 1e-6)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = Standard()
        self.fc = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 2))

    def forward(self, x):
        return self.fc(self.norm(x))


x = torch.randn(500, 12)
y = (x[:, 0] > 0).long()
x[300:] = 1000.3 + 1e-3 * torch.randn(200, 12)
net = Net()
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for step in range(60):
    idx = torch.randint(0, 300 if step < 20 else 500, (32,))
    loss = nn.functional.cross_entropy(net(x[idx]), y[idx])
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 15 == 14:
        print(f"step {step} loss {loss.item():.4f}")
