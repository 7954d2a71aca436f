import torch
import torch.nn as nn

torch.manual_seed(0)
WARMUP = 500
x = torch.randn(1000, 10)
y = (x[:, 0] > 0).long()
model = nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 2))
opt = torch.optim.Adam(model.parameters(), lr=1e-2)
sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1, s // WARMUP))
for epoch in range(6):
    for idx in torch.randperm(1000).split(50):
        loss = nn.functional.cross_entropy(model(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
    print(f"epoch {epoch} loss {loss.item():.4f} lr {sched.get_last_lr()[0]:.4f}")
