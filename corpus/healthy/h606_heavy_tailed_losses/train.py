import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


x = torch.randn(640, 8)
noise = torch.distributions.StudentT(1.5).sample((640, 1))
y = x @ torch.randn(8, 1) + noise
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(10):
    for k in range(0, 640, 16):
        loss = F.mse_loss(model(x[k : k + 16]), y[k : k + 16])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    print(epoch, loss.item())
