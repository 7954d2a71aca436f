# pattern source: shiningrain/AUTOTRAINER (vanishing gradient class), DeepFD fault class "inappropriate activation"
import torch
import torch.nn as nn

torch.manual_seed(0)


class DeepNet(nn.Module):
    def __init__(self, depth=10, width=32):
        super().__init__()
        sizes = [2] + [width] * depth
        self.layers = nn.ModuleList([nn.Linear(a, b) for a, b in zip(sizes, sizes[1:])])
        self.act = nn.ReLU()
        self.out = nn.Linear(width, 2)

    def forward(self, x):
        for layer in self.layers:
            x = self.act(layer(x))
        return self.out(x)


n = 1000
angle = torch.rand(n) * 6.2832
y = torch.randint(0, 2, (n,))
radius = 0.6 + 0.9 * y.float() + 0.15 * torch.randn(n)
x = torch.stack([radius * angle.cos(), radius * angle.sin()], 1)
model = DeepNet()
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
for epoch in range(20):
    total = 0.0
    for idx in torch.randperm(n).split(50):
        loss = nn.functional.cross_entropy(model(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item() / 20
    if epoch % 4 == 3:
        acc = (model(x).argmax(1) == y).float().mean().item()
        print(f"epoch {epoch} loss {total:.4f} acc {acc:.3f}")
