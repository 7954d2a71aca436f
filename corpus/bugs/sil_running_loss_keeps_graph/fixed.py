import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(50, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU(), nn.Linear(200, 5))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
x = torch.randn(2000, 50)
y = x[:, :5].argmax(1)
for epoch in range(2):
    running = 0
    for idx in torch.randperm(2000).split(20):
        loss = nn.functional.cross_entropy(model(x[idx]), y[idx])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        running += loss.item()
    print(f"epoch {epoch} loss {running / 100:.4f}")
