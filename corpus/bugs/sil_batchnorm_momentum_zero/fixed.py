import torch
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(10, 32)
        self.bn = nn.BatchNorm1d(32, momentum=0.1)
        self.out = nn.Linear(32, 4)

    def forward(self, x):
        return self.out(torch.relu(self.bn(self.fc(x))))


y = torch.randint(0, 4, (800,))
x = torch.randn(4, 10)[y] * 3 + torch.randn(800, 10) + 20
model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for epoch in range(6):
    model.train()
    for idx in torch.randperm(600).split(50):
        loss = nn.functional.cross_entropy(model(x[idx]), y[idx])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        held_out = nn.functional.cross_entropy(model(x[600:]), y[600:])
    print(epoch, loss.item(), held_out.item())
