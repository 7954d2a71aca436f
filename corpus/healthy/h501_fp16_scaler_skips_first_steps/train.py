import torch
import torch.nn as nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(4, 24, 5, padding=2)
        self.norm = nn.GroupNorm(4, 24)
        self.fc = nn.Linear(24, 3)

    def forward(self, x):
        h = torch.relu(self.norm(self.conv(x)))
        return self.fc(h.mean(-1))


def batch(n=48, t=32):
    y = torch.randint(0, 3, (n,))
    phase = torch.rand(n, 1, 1) * 6.28
    freq = torch.tensor([0.3, 0.8, 1.6])[y][:, None, None]
    x = torch.sin(freq * torch.arange(t) + phase + torch.arange(4)[None, :, None])
    return x + 0.2 * torch.randn(n, 4, t), y


model = Net()
opt = torch.optim.AdamW(model.parameters(), lr=5e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**22, growth_interval=60)
skipped = 0
for step in range(150):
    x, y = batch()
    with torch.autocast("cpu", dtype=torch.float16):
        logits = model(x)
    loss = nn.functional.cross_entropy(logits.float(), y)
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(opt)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    before = scaler.get_scale()
    scaler.step(opt)
    scaler.update()
    skipped += scaler.get_scale() < before
    if step % 25 == 24:
        acc = (logits.argmax(1) == y).float().mean().item()
        print(f"step {step} loss {loss.item():.4f} acc {acc:.3f} scale {scaler.get_scale():.0f} skipped {skipped}")
