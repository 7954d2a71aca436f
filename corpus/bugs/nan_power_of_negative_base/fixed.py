import torch
import torch.nn as nn

torch.manual_seed(0)


class ToneMap(nn.Module):
    def __init__(self):
        super().__init__()
        self.gamma = nn.Parameter(torch.tensor(0.45))

    def forward(self, x):
        return x.clamp(min=1e-4) ** self.gamma


class Enhancer(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 1, 3, padding=1)
        self.tone = ToneMap()

    def forward(self, x):
        return self.tone(self.conv(x))


clean = torch.rand(200, 1, 8, 8) * 0.8 + 0.2
dark = clean ** 2.2
net = Enhancer()
nn.init.constant_(net.conv.weight, 1 / 9)
nn.init.zeros_(net.conv.bias)
opt = torch.optim.SGD(net.parameters(), lr=0.5)
for step in range(60):
    idx = torch.randint(0, 200, (16,))
    noisy = dark[idx] + 0.05 * step / 10 * torch.randn(16, 1, 8, 8)
    loss = (net(noisy) - clean[idx]).abs().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 10 == 9:
        print(f"step {step} loss {loss.item():.4f}")
