import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


class Pose(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 3))

    def forward(self, x):
        return F.normalize(self.net(x), dim=1)


def angle(a, b):
    cos = (a * b).sum(1)
    return torch.acos(cos.clamp(-1 + 1e-6, 1 - 1e-6)).mean()


x = torch.randn(500, 6)
target = F.normalize(torch.randn(1, 3), dim=1).expand(500, 3)
model = Pose()
opt = torch.optim.Adam(model.parameters(), lr=5e-3)
for step in range(200):
    idx = torch.randint(0, 500, (64,))
    loss = angle(model(x[idx]), target[idx])
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 40 == 39:
        print(f"step {step} loss {loss.item():.4f}")
