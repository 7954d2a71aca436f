import torch
import torch.nn as nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self, classes=5):
        super().__init__()
        self.fc = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, classes))

    def forward(self, x):
        return self.fc(x)


x = torch.randn(300, 8)
ratings = torch.randint(1, 6, (300,))
net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(2):
    for idx in torch.randperm(300).split(30):
        loss = nn.functional.cross_entropy(net(x[idx]), ratings[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
