# pattern source: yk7333/d3po#6, haotian-liu/LLaVA#363, TheLastBen/fast-stable-diffusion#1975
import torch
import torch.nn as nn

torch.manual_seed(1)


class Adapter(nn.Module):
    def __init__(self, base, rank=4):
        super().__init__()
        self.base = base
        self.down = nn.Linear(base.in_features, rank, bias=False, dtype=base.weight.dtype)
        self.up = nn.Linear(rank, base.out_features, bias=False, dtype=base.weight.dtype)
        nn.init.zeros_(self.up.weight)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


class Backbone(nn.Module):
    def __init__(self, d=40):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(12, d), nn.Linear(d, d)
        self.head = nn.Linear(d, 4)

    def forward(self, x):
        h = torch.relu(self.fc1(x))
        return self.head(torch.relu(self.fc2(h)))


model = Backbone().half()
model.requires_grad_(False)
model.fc1, model.fc2 = Adapter(model.fc1), Adapter(model.fc2)
model.head.requires_grad_(True)
trainable = [p for p in model.parameters() if p.requires_grad and p.ndim > 0]
for m in (model.fc1, model.fc2):
    m.base.requires_grad_(False)
opt = torch.optim.AdamW(trainable, lr=5e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
for step in range(60):
    x = torch.randn(64, 12)
    y = x[:, :4].argmax(1)
    with torch.autocast("cpu", dtype=torch.float16):
        logits = model(x)
    loss = nn.functional.cross_entropy(logits.float(), y)
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(opt)
    nn.utils.clip_grad_norm_(trainable, 1.0)
    scaler.step(opt)
    scaler.update()
    if step % 10 == 0:
        print(f"step {step} loss {loss.item():.4f}")
