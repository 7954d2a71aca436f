import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


x = torch.randn(640, 8)
y = x @ torch.randn(8, 1)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(120):
    if step == 60:
        for group in optimizer.param_groups:
            group["lr"] = 0.015
    index = torch.randint(0, 640, (32,))
    loss = F.mse_loss(model(x[index]), y[index])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
