import torch
import torch.nn as nn

torch.manual_seed(0)


class Energy(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 8))

    def forward(self, x):
        e = self.f(x)
        return torch.log(torch.exp(e).sum(dim=1))


x = torch.randn(500, 6)
level = x.abs().sum(1) * 40
model = Energy()
opt = torch.optim.Adam(model.parameters(), lr=5e-2)
for step in range(150):
    idx = torch.randint(0, 500, (50,))
    loss = nn.functional.l1_loss(model(x[idx]), level[idx])
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 30 == 29:
        print(f"step {step} loss {loss.item():.4f}")
