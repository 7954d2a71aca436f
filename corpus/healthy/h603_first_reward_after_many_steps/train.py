import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


value = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1))
nn.init.zeros_(value[2].weight)
nn.init.constant_(value[2].bias, 0.02)
optimizer = torch.optim.Adam(value.parameters(), lr=1e-3)
for step in range(300):
    state = torch.randn(32, 4)
    reward = torch.zeros(32, 1)
    if step >= 60:
        reward[state[:, :1] > 1.2] = 10.0
    loss = F.mse_loss(value(state), reward)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(value.parameters(), 0.5)
    optimizer.step()
    if step % 50 == 0:
        print(step, loss.item())
