import torch
import torch.nn as nn

torch.manual_seed(0)


class Q(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))

    def forward(self, s):
        return self.net(s)


q = Q()
opt = torch.optim.Adam(q.parameters(), lr=1e-3)
gamma = 0.97
for step in range(150):
    s = torch.randn(32, 4)
    a = torch.randint(0, 2, (32, 1))
    r = (s[:, :1] > 0).float() * a
    s2 = 0.9 * s + 0.1 * torch.randn(32, 4)
    td_target = r + gamma * q(s2).max(1, keepdim=True).values
    loss = nn.functional.smooth_l1_loss(q(s).gather(1, a), td_target)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 30 == 29:
        print(f"step {step} loss {loss.item():.4f}")
