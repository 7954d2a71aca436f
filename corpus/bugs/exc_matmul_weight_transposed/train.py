import torch
import torch.nn as nn

torch.manual_seed(0)


class Projection(nn.Module):
    def __init__(self, din, dout):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(dout, din) / din**0.5)
        self.bias = nn.Parameter(torch.zeros(dout))

    def forward(self, x):
        return x @ self.weight + self.bias


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = Projection(10, 24)
        self.out = nn.Linear(24, 2)

    def forward(self, x):
        return self.out(torch.relu(self.proj(x)))


x = torch.randn(200, 10)
y = (x[:, 0] > 0).long()
net = Net()
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
for idx in torch.randperm(200).split(20):
    loss = nn.functional.cross_entropy(net(x[idx]), y[idx])
    opt.zero_grad()
    loss.backward()
    opt.step()
print("done", loss.item())
