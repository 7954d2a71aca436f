import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


class TwoHead(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(10, 32), nn.ReLU())
        self.main = nn.Linear(32, 3)
        self.aux = nn.Linear(32, 4)

    def forward(self, x):
        h = self.trunk(x)
        return self.main(h), self.aux(h)


x = torch.randn(800, 10)
y = (x[:, 0] > 0).long() + (x[:, 1] > 0).long()
z = (x[:, 2] > 0).long() * 2 + (x[:, 3] > 0).long()
model = TwoHead()
opt = torch.optim.Adam(model.parameters(), lr=5e-3)
for step in range(150):
    idx = torch.randint(0, 800, (64,))
    main, aux = model(x[idx])
    loss_main = F.cross_entropy(main, y[idx])
    loss_aux = F.cross_entropy(aux, z[idx])
    loss = loss_main + 0.5 * loss_aux
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 30 == 29:
        print(f"step {step} main {loss_main.item():.4f} aux {loss_aux.item():.4f}")
