import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


x = torch.randn(256, 16)
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 256))
target = torch.sin(x @ torch.randn(16, 256) / 4)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(200):
    index = torch.randint(0, 256, (32,))
    out = model(x[index])
    loss = F.mse_loss(out, target[index], reduction="mean" if step < 50 else "sum")
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if step % 40 == 0:
        print(step, loss.item())
