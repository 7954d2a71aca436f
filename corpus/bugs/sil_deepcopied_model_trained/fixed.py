import copy

import torch
import torch.nn as nn

torch.manual_seed(0)
x = torch.randn(600, 10)
y = (x[:, 0] * 2 + x[:, 1] > 0).long()
base = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 2))
model = copy.deepcopy(base)
opt = torch.optim.Adam(model.parameters(), lr=1e-2)
for epoch in range(6):
    for idx in torch.randperm(600).split(30):
        loss = nn.functional.cross_entropy(model(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
