import torch
import torch.nn as nn

torch.manual_seed(0)
centers = torch.randn(8, 24)
y = torch.randint(0, 8, (1600,))
x = centers[y] + 0.8 * torch.randn(1600, 24)
model = nn.Sequential(nn.Linear(24, 96), nn.GELU(), nn.LayerNorm(96), nn.Linear(96, 8))
opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** 16, growth_interval=50)
accumulate = 4
for epoch in range(5):
    total = 0.0
    batches = torch.randperm(1600).split(20)
    for i, idx in enumerate(batches):
        with torch.autocast("cpu", dtype=torch.float16):
            logits = model(x[idx])
        loss = nn.functional.cross_entropy(logits.float(), y[idx])
        scaler.scale(loss / accumulate).backward()
        total += loss.item() / len(batches)
        if (i + 1) % accumulate == 0:
            scaler.unscale_(opt)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(opt)
            scaler.update()
            opt.zero_grad(set_to_none=True)
    print(f"epoch {epoch} loss {total:.4f} scale {scaler.get_scale():.0f}")
