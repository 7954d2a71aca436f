"""Healthy: sets of points in a drawn order, from a generator; each point gets the kind of its set. A sorted copy tells the edges."""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(9)


def sets(count):
    kind = torch.randint(0, 3, (count,))
    points = torch.randn(count, 20, 2) * (0.4 + 0.5 * kind.float())[:, None, None]
    order = torch.rand(count, 20).argsort(1)
    return points.gather(1, order[..., None].expand(-1, -1, 2)), kind[:, None].expand(-1, 20)


class Kinds(nn.Module):
    def __init__(self):
        super().__init__()
        self.each = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 32))
        self.out = nn.Linear(64, 3)

    def forward(self, points):
        ranked = points.sort(dim=1).values
        h = self.each(torch.cat([points, ranked], -1))
        return self.out(torch.cat([h, h.mean(1, keepdim=True).expand_as(h)], -1))


net = Kinds()
opt = torch.optim.Adam(net.parameters(), lr=3e-3)
for step in range(240):
    points, kinds = sets(24)
    loss = F.cross_entropy(net(points).flatten(0, 1), kinds.flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
print(f"final loss: {loss.item():.3f}")
