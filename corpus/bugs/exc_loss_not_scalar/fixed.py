import torch
import torch.nn as nn

torch.manual_seed(0)
x = torch.randn(200, 6)
y = torch.randn(200, 1)
w = torch.rand(200, 1)
model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 1))
criterion = nn.MSELoss(reduction="none")
opt = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(20):
    idx = torch.randint(0, 200, (32,))
    loss = (criterion(model(x[idx]), y[idx]) * w[idx]).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print("done")
