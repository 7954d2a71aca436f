import torch
import torch.nn as nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(6, 12)
        self.b = nn.Linear(12, 2)

    def forward(self, x):
        self.h = torch.relu(self.a(x))
        self.h.retain_grad()
        return self.b(self.h)


x = torch.randn(200, 6)
y = (x[:, 0] > 0).long()
net = Net()
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
for step in range(20):
    idx = torch.randint(0, 200, (20,))
    loss = nn.functional.cross_entropy(net(x[idx]), y[idx])
    opt.zero_grad()
    loss.backward()
    importance = net.h.grad.abs().mean(0)
    opt.step()
print("done", importance.sum().item())
