import math
import torch
import torch.nn as nn

torch.manual_seed(0)


class NeighbourAttention(nn.Module):
    """nodes attend to their neighbours; isolated nodes get zeros"""

    def __init__(self, d):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d)

    def forward(self, x, adj):
        s = self.q(x) @ self.k(x).transpose(1, 2) / math.sqrt(x.size(-1))
        w = s.masked_fill(~adj, float("-inf")).softmax(-1)
        w = w.masked_fill(~adj, 0.0)
        return w @ self.v(x)


class GraphNet(nn.Module):
    def __init__(self, d=24):
        super().__init__()
        self.inp = nn.Linear(4, d)
        self.att = nn.ModuleList([NeighbourAttention(d), NeighbourAttention(d)])
        self.norm = nn.ModuleList([nn.LayerNorm(d), nn.LayerNorm(d)])
        self.out = nn.Linear(d, 1)

    def forward(self, x, adj):
        h = self.inp(x)
        for att, norm in zip(self.att, self.norm):
            h = h + att(norm(h), adj)
        return self.out(h.mean(1)).squeeze(-1)


model = GraphNet()
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(100):
    x = torch.randn(24, 7, 4)
    adj = torch.rand(24, 7, 7) < 0.25
    deg = adj.float().sum(-1, keepdim=True).clamp(min=1)
    y = ((adj.float() @ x) / deg)[..., 0].mean(1)
    loss = nn.functional.mse_loss(model(x, adj), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 20 == 19:
        print(f"step {step} loss {loss.item():.5f}")
