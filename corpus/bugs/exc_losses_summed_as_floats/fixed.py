import torch
import torch.nn as nn

torch.manual_seed(0)


class Pyramid(nn.Module):
    def __init__(self):
        super().__init__()
        self.levels = nn.ModuleList(nn.Linear(d, d) for d in (16, 8, 4))

    def forward(self, x):
        out = []
        for level in self.levels:
            x = x[:, : level.in_features]
            out.append(level(x))
        return out


def pyramid_loss(outs, target):
    total = 0.0
    for out in outs:
        total = total + nn.functional.l1_loss(out, target[:, : out.size(1)])
    return total


model = Pyramid()
opt = torch.optim.Adam(model.parameters(), lr=5e-3)
for step in range(60):
    x = torch.randn(32, 16)
    loss = pyramid_loss(model(x), x * 0.5 + 1)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 20 == 19:
        print(f"step {step} loss {float(loss):.4f}")
