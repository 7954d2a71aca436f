import torch
import torch.nn as nn

torch.manual_seed(0)


class Field(nn.Module):
    """solves u'' = -sin(t) with u(0) = 0 and u(pi) = 0"""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 1))

    def forward(self, t):
        return self.net(t)


field = Field()
opt = torch.optim.Adam(field.parameters(), lr=5e-3)
edges = torch.tensor([[0.0], [torch.pi]])
for step in range(200):
    t = (torch.rand(64, 1) * torch.pi).requires_grad_()
    u = field(t)
    (du,) = torch.autograd.grad(u.sum(), t, create_graph=True)
    (ddu,) = torch.autograd.grad(du.sum(), t, create_graph=True)
    loss = ((ddu + torch.sin(t)) ** 2).mean() + (field(edges) ** 2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 49:
        print(f"step {step} loss {loss.item():.5f}")
