import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


x = torch.randn(320, 8)
y = x @ torch.randn(8, 1)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
for step in range(300):
    index = torch.randint(0, 320, (32,))
    model.zero_grad()
    loss = F.mse_loss(model(x[index]), y[index])
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    for parameter in model.parameters():
        parameter.data.add_(parameter.grad, alpha=-0.02)
    if step % 60 == 0:
        print(step, loss.item())
