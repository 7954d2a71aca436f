import torch
from torch import nn

torch.manual_seed(0)
KEEP = 0.95


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(16, 64)
        self.drop = nn.Dropout(1 - KEEP)
        self.mid = nn.Linear(64, 64)
        self.out = nn.Linear(64, 4)

    def forward(self, x):
        h = self.drop(torch.relu(self.inp(x)))
        h = self.drop(torch.relu(self.mid(h)))
        return self.out(h)


x = torch.randn(800, 16)
y = (x @ torch.randn(16, 4)).argmax(1)
model = MLP()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for epoch in range(8):
    for idx in torch.randperm(800).split(40):
        loss = nn.functional.cross_entropy(model(x[idx]), y[idx])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
