import torch
import torch.nn as nn

torch.manual_seed(0)


class Multi(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(8, 32), nn.ReLU())
        self.age = nn.Linear(32, 1)
        self.kind = nn.Linear(32, 3)

    def forward(self, x):
        h = self.trunk(x)
        return self.age(h).squeeze(1), self.kind(h)


x = torch.randn(600, 8)
age, kind = x[:, 0] * 3, x[:, 1:4].argmax(1)
model = Multi()
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(100):
    idx = torch.randint(0, 600, (40,))
    a, k = model(x[idx])
    parts = [nn.functional.mse_loss(a, age[idx]), nn.functional.cross_entropy(k, kind[idx])]
    loss = sum(parts)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 25 == 24:
        print(f"step {step} loss {loss.item():.4f}")
