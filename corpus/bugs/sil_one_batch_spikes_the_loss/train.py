import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


x = torch.randn(640, 8)
y = x @ torch.randn(8, 1) + 0.1 * torch.randn(640, 1)
x[480:496] *= 1e5
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(2):
    for k in range(0, 640, 16):
        loss = F.mse_loss(model(x[k : k + 16]), y[k : k + 16])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
