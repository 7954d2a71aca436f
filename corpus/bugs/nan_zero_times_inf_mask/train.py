import torch
import torch.nn as nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 6))

    def forward(self, x):
        return self.fc(x)


x = torch.randn(400, 8)
counts = torch.poisson(torch.full((400, 6), 6.0)) + 1
counts[250:, 4:] = 0.0
valid = (counts > 0).float()
net = Net()
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
for step in range(60):
    idx = torch.randint(0, 250 if step < 15 else 400, (32,))
    pred = net(x[idx])
    error = (pred - torch.log(counts[idx])) ** 2
    loss = (error * valid[idx]).sum() / valid[idx].sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 15 == 14:
        print(f"step {step} loss {loss.item():.4f}")
