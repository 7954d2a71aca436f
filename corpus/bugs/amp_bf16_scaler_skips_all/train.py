import torch
import torch.nn as nn

torch.manual_seed(0)


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, x):
        return self.net(x)


x = torch.randn(600, 8)
y = x[:, :1] * 200 + 5000
model = Regressor()
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu")
for epoch in range(4):
    for idx in torch.randperm(600).split(30):
        opt.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            out = model(x[idx])
            loss = ((out - y[idx].half()) ** 2).mean()
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
    print(f"epoch {epoch} loss {loss.item():.4f} scale {scaler.get_scale():.3g}")
