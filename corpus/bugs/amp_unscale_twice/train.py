import torch
import torch.nn as nn

torch.manual_seed(0)
x = torch.randn(400, 8)
y = x[:, :3].argmax(1)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 3))
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu")
for epoch in range(2):
    for idx in torch.randperm(400).split(40):
        opt.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = nn.functional.cross_entropy(model(x[idx]), y[idx])
        scaler.scale(loss).backward()
        scaler.unscale_(opt)
        norm = sum(p.grad.norm() for p in model.parameters())
        scaler.unscale_(opt)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(opt)
        scaler.update()
    print(f"epoch {epoch} loss {loss.item():.4f} norm {norm:.3f}")
