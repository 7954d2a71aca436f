import torch
import torch.nn as nn

torch.manual_seed(0)


class Multi(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(10, 20), nn.Tanh())
        self.a = nn.Linear(20, 1)
        self.b = nn.Linear(20, 3)

    def forward(self, x):
        h = self.enc(x)
        return self.a(h), self.b(h)


x = torch.randn(200, 10)
ya, yb = torch.randn(200, 1), torch.randint(0, 3, (200,))
model = Multi()
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(20):
    idx = torch.randint(0, 200, (20,))
    pa, pb = model(x[idx])
    loss_a = nn.functional.mse_loss(pa, ya[idx])
    loss_b = nn.functional.cross_entropy(pb, yb[idx])
    opt.zero_grad()
    (loss_a + loss_b).backward()
    opt.step()
print("done")
