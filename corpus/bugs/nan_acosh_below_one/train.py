import torch
import torch.nn as nn

torch.manual_seed(0)


def poincare_distance(u, v):
    sq = (u - v).pow(2).sum(-1)
    a = (1 - u.pow(2).sum(-1)) * (1 - v.pow(2).sum(-1))
    return torch.acosh(1 + 2 * sq / a)


class Hyperbolic(nn.Module):
    def __init__(self, n=60, dim=4):
        super().__init__()
        self.table = nn.Embedding(n, dim)
        nn.init.uniform_(self.table.weight, -0.01, 0.01)

    def forward(self, u, v):
        return poincare_distance(self.table(u), self.table(v))


model = Hyperbolic()
opt = torch.optim.SGD(model.parameters(), lr=0.02)
for step in range(80):
    u = torch.randint(0, 60, (8,))
    near = torch.where(torch.rand(8) < 0.9, (u // 2).clamp(min=0), u)
    far = (u + torch.randint(1, 60, (8,))) % 60
    loss = (model(u, near) - model(u, far) + 0.5).clamp(min=0).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 10 == 9:
        print(f"step {step} loss {loss.item():.4f}")
