import torch
import torch.nn as nn

torch.manual_seed(0)
x = torch.randn(500, 16)
y = torch.randint(0, 3, (500,))
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 3)).half()
opt = torch.optim.SGD(model.parameters(), lr=1e-5)
for epoch in range(4):
    for idx in torch.randperm(500).split(25):
        out = model(x[idx].half()).float()
        loss = nn.functional.cross_entropy(out, y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"epoch {epoch} loss {loss.item():.6f}")
