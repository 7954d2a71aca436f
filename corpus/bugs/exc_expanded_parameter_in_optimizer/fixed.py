# pattern source: monniert/dti-sprites#2, huangleiBuaa/IterNorm-pytorch#2, pytorch/pytorch#4664
import torch
import torch.nn as nn

torch.manual_seed(0)


class Slots(nn.Module):
    """cross attention from a few learned slots to the set elements"""

    def __init__(self, d=24, n_slots=4):
        super().__init__()
        self.slots = nn.Parameter((0.1 * torch.randn(1, d)).repeat(n_slots, 1) + 0.02 * torch.randn(n_slots, d))
        self.k, self.v = nn.Linear(d, d), nn.Linear(d, d)

    def forward(self, x):
        att = (self.slots @ self.k(x).transpose(1, 2) / x.size(-1) ** 0.5).softmax(-1)
        return att @ self.v(x)


class SetClassifier(nn.Module):
    def __init__(self, d=24):
        super().__init__()
        self.inp = nn.Sequential(nn.Linear(3, d), nn.ReLU())
        self.pool = Slots(d)
        self.out = nn.Linear(4 * d, 3)

    def forward(self, x):
        return self.out(self.pool(self.inp(x)).flatten(1))


model = SetClassifier()
opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(50):
    y = torch.randint(0, 3, (32,))
    x = torch.randn(32, 10, 3) * (0.5 + y.float())[:, None, None]
    loss = nn.functional.cross_entropy(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 10 == 0:
        print(f"step {step} loss {loss.item():.4f}")
print(f"final loss {loss.item():.4f}")
