import torch
from torch import nn

torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.width = width
        self.inner = nn.Linear(width, width)

    def forward(self, x):
        h = torch.relu(self.inner(x))
        project = nn.Linear(h.shape[-1], self.width)
        return torch.relu(project(h))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(8, 32)
        self.block = Block(32)
        self.head = nn.Linear(32, 3)

    def forward(self, x):
        return self.head(self.block(torch.relu(self.stem(x))))


x = torch.randn(600, 8)
y = x[:, :3].argmax(1)
model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(150):
    idx = torch.randint(0, 600, (64,))
    loss = nn.functional.cross_entropy(model(x[idx]), y[idx])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 30 == 0:
        print(step, loss.item())
