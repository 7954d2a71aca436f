import torch
import torch.nn as nn
from torch.nn.utils.parametrizations import weight_norm

torch.manual_seed(0)


class Vocoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.pre = weight_norm(nn.Conv1d(4, 16, 3, padding=1))
        out = nn.Conv1d(16, 1, 3, padding=1)
        nn.init.zeros_(out.weight)
        self.out = weight_norm(out)

    def forward(self, x):
        return self.out(torch.tanh(self.pre(x)))


model = Vocoder()
opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
for step in range(40):
    mel = torch.randn(8, 4, 24)
    wave = mel.mean(1, keepdim=True).cumsum(-1) * 0.3
    loss = nn.functional.l1_loss(model(mel), wave)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 10 == 0:
        print(f"step {step} loss {loss.item():.4f}")
