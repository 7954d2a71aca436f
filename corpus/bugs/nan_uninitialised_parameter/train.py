import torch
import torch.nn as nn

torch.manual_seed(0)


class Mix(nn.Module):
    def __init__(self, d):
        super().__init__()
        w = torch.empty(d, d)
        w.fill_(float("nan"))
        self.weight = nn.Parameter(w)

    def forward(self, x):
        return x @ self.weight


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(6, 16)
        self.mix = Mix(16)
        self.out = nn.Linear(16, 2)

    def forward(self, x):
        return self.out(torch.relu(self.mix(torch.relu(self.inp(x)))))


x = torch.randn(300, 6)
y = (x[:, 0] > 0).long()
net = Net()
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for step in range(40):
    idx = torch.randint(0, 300, (32,))
    loss = nn.functional.cross_entropy(net(x[idx]), y[idx])
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 10 == 9:
        print(f"step {step} loss {loss.item():.4f}")
