import torch
import torch.nn as nn

torch.manual_seed(0)
x = torch.randn(512, 20)
y = x[:, :4].argmax(1)
model = nn.Sequential(nn.Linear(20, 64), nn.GELU(), nn.Linear(64, 4))
opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)
ACC = 4
for epoch in range(4):
    for n, i in enumerate(torch.randperm(512).split(16)):
        with torch.autocast("cpu", dtype=torch.float16):
            loss = nn.functional.cross_entropy(model(x[i]), y[i]) / ACC
        scaler.scale(loss).backward()
        if n % ACC == ACC - 1:
            scaler.unscale_(opt)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(opt)
            scaler.update()
            opt.zero_grad()
    print(f"epoch {epoch} loss {loss.item() * ACC:.4f}")
