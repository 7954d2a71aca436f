import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 32))
        self.projector = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 16))

    def forward(self, x):
        return F.normalize(self.projector(self.body(x)), dim=1)


def info_nce(a, b, temperature=0.2):
    z = torch.cat([a, b])
    sim = z @ z.t() / temperature
    sim = sim.masked_fill(torch.eye(len(z), dtype=torch.bool), float("-inf"))
    n = len(a)
    target = torch.cat([torch.arange(n, 2 * n), torch.arange(n)])
    return F.cross_entropy(sim, target)


centers = torch.randn(20, 16) * 2
data = centers[torch.randint(0, 20, (1000,))] + torch.randn(1000, 16)
model = Encoder()
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
for step in range(120):
    batch = data[torch.randint(0, 1000, (64,))]
    loss = info_nce(model(batch + 0.3 * torch.randn_like(batch)), model(batch + 0.3 * torch.randn_like(batch)))
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 30 == 29:
        print(f"step {step} loss {loss.item():.4f}")
