"""Message passing with index_add on a graph with communities; some labels are known."""

import torch, torch.nn as nn, torch.nn.functional as F

torch.manual_seed(11)
n, k = 400, 4
y = torch.arange(n) % k
p = torch.where(y[:, None] == y[None], 0.06, 0.006)
adj = torch.bernoulli(p).triu(1)
adj = adj + adj.t()
src, dst = adj.nonzero().t()
x = F.one_hot(y, k).float() * 0.6 + torch.randn(n, k)
x = torch.cat([x, torch.randn(n, 12)], 1)
deg = adj.sum(1).clamp(min=1)


class Layer(nn.Module):
    def __init__(self, a, b):
        super().__init__()
        self.own, self.other = nn.Linear(a, b), nn.Linear(a, b)

    def forward(self, h):
        messages = self.other(h)[src]
        return self.own(h) + torch.zeros(len(h), messages.size(1)).index_add(0, dst, messages) / deg[:, None]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = Layer(16, 32), Layer(32, k)

    def forward(self, h):
        return self.b(F.dropout(F.relu(self.a(h)), 0.3, self.training))


train = torch.rand(n) < 0.3
net = Net()
opt = torch.optim.Adam(net.parameters(), lr=1e-2, weight_decay=5e-4)
for epoch in range(150):
    net.train()
    loss = F.cross_entropy(net(x)[train], y[train])
    opt.zero_grad()
    loss.backward()
    opt.step()
net.eval()
with torch.no_grad():
    out = net(x)
print("final acc:", float((out[~train].argmax(1) == y[~train]).float().mean()))
