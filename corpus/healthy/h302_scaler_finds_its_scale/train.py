import torch
import torch.nn as nn

torch.manual_seed(1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(1, 12, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(12, 24, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(2))
        self.fc = nn.Linear(96, 5)

    def forward(self, x):
        return self.fc(self.conv(x).flatten(1))


protos = torch.randn(5, 1, 10, 10)
model = Net()
opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=70)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24, growth_interval=30)
skipped = 0
for step in range(75):
    y = torch.randint(0, 5, (24,))
    x = protos[y] + 0.8 * torch.randn(24, 1, 10, 10)
    opt.zero_grad(set_to_none=True)
    with torch.autocast("cpu", dtype=torch.float16):
        logits = model(x)
    loss = nn.functional.cross_entropy(logits.float(), y)
    scaler.scale(loss).backward()
    scaler.unscale_(opt)
    nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    before = scaler.get_scale()
    scaler.step(opt)
    scaler.update()
    if scaler.get_scale() < before:
        skipped += 1
    else:
        sched.step()
    if step % 15 == 14:
        print(f"step {step} loss {loss.item():.4f} scale {scaler.get_scale():.0f} skipped {skipped}")
