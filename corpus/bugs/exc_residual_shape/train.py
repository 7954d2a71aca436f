import torch
import torch.nn as nn

torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, padding=1)
        self.conv2 = nn.Conv2d(cout, cout, 3, padding=1)

    def forward(self, x):
        h = self.conv2(torch.relu(self.conv1(x)))
        return torch.relu(h + x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 8, 3, padding=1)
        self.block1 = Block(8, 8)
        self.block2 = Block(8, 16)
        self.fc = nn.Linear(16, 3)

    def forward(self, x):
        x = self.block2(self.block1(torch.relu(self.stem(x))))
        return self.fc(x.mean((2, 3)))


x = torch.randn(100, 1, 8, 8)
y = torch.randint(0, 3, (100,))
net = Net()
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for idx in torch.randperm(100).split(20):
    loss = nn.functional.cross_entropy(net(x[idx]), y[idx])
    opt.zero_grad()
    loss.backward()
    opt.step()
print("done", loss.item())
