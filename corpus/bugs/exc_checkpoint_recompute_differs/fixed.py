# pattern source: jzhang38/TinyLlama#152, pytorch/torchtitan#1117, hiyouga/LlamaFactory#6438
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(1)


class GatedMixer(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.mix, self.to_gate = nn.Linear(d, d), nn.Linear(d, d)
        self.gate = None

    def forward(self, x):
        gate = torch.sigmoid(self.to_gate(x.mean(1, keepdim=True)))
        return x + gate * torch.tanh(self.mix(x))


class Regressor(nn.Module):
    def __init__(self, d=32, depth=3):
        super().__init__()
        self.inp = nn.Linear(5, d)
        self.blocks = nn.ModuleList(GatedMixer(d) for _ in range(depth))
        self.out = nn.Linear(d, 1)

    def forward(self, x):
        h = self.inp(x)
        for block in self.blocks:
            block.gate = None
            h = checkpoint(block, h, use_reentrant=False)
        return self.out(h.mean(1)).squeeze(-1)


model = Regressor()
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(60):
    x = torch.randn(32, 6, 5)
    y = x.mean(1).sum(1)
    loss = nn.functional.mse_loss(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 10 == 0:
        print(f"step {step} loss {loss.item():.4f}")
