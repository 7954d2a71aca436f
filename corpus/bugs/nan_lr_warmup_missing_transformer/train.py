import torch
import torch.nn as nn

torch.manual_seed(0)


class House(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(5, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, x):
        return self.net(x)


rooms = torch.randn(400, 5)
price = rooms @ torch.randn(5, 1) * 50 + 200
model = House()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for epoch in range(6):
    for idx in torch.randperm(400).split(40):
        loss = nn.functional.mse_loss(model(rooms[idx]), price[idx])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.3g}")
