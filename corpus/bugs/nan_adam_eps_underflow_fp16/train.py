import torch
import torch.nn as nn

torch.manual_seed(0)
x = torch.randn(400, 12)
y = (x[:, 0] > 0).long()
x[:, 11] = 0
model = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 2)).half()
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(40):
    idx = torch.randint(0, 400, (32,))
    out = model(x[idx].half()).float()
    loss = nn.functional.cross_entropy(out, y[idx])
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 10 == 9:
        print(f"step {step} loss {loss.item():.4f}")
