import torch
import torch.nn as nn

torch.manual_seed(0)
x = torch.randn(600, 16)
y = (x @ torch.randn(16, 4)).argmax(1)
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
opt = torch.optim.SGD(model.parameters(), lr=0.05)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
for epoch in range(4):
    for idx in torch.randperm(600).split(30):
        opt.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            logits = model(x[idx])
        loss = nn.functional.cross_entropy(logits.float(), y[idx])
        scaler.scale(loss).backward()
        opt.step()
        scaler.update()
    print(f"epoch {epoch} loss {loss.item():.4f}")
