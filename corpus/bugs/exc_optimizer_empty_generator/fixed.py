import torch
import torch.nn as nn

torch.manual_seed(0)
x = torch.randn(200, 6)
y = x.sum(1, keepdim=True)
model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 1))
params = [p for p in model.parameters() if p.requires_grad]
print("parameters:", sum(p.numel() for p in params))
opt = torch.optim.Adam(params, lr=1e-2)
for step in range(30):
    loss = nn.functional.mse_loss(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
print("done", loss.item())
