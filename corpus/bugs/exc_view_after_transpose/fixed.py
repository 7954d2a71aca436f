import torch
import torch.nn as nn

torch.manual_seed(0)


class Mixer(nn.Module):
    def __init__(self, heads=4, dim=16):
        super().__init__()
        self.heads = heads
        self.inp = nn.Linear(dim, dim)
        self.out = nn.Linear(dim, 2)

    def forward(self, x):
        b, t, d = x.shape
        h = self.inp(x).view(b, t, self.heads, d // self.heads).transpose(1, 2)
        h = torch.tanh(h).contiguous()
        h = h.transpose(1, 2).reshape(b, t, d)
        return self.out(h.mean(1))


x = torch.randn(200, 5, 16)
y = (x[:, 0, 0] > 0).long()
net = Mixer()
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
for step in range(20):
    idx = torch.randint(0, 200, (20,))
    loss = nn.functional.cross_entropy(net(x[idx]), y[idx])
    opt.zero_grad()
    loss.backward()
    opt.step()
print("done", loss.item())
