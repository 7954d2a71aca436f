import torch
import torch.nn as nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(20, 64)
        self.fc2 = nn.Linear(64, 64)
        self.out = nn.Linear(64, 3)
        for layer in (self.fc1, self.fc2):
            nn.init.normal_(layer.weight, std=5.0)

    def forward(self, x):
        return self.out(torch.tanh(self.fc2(torch.tanh(self.fc1(x)))))


x = torch.randn(800, 20)
y = x[:, :3].argmax(1)
net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.05)
for epoch in range(5):
    for idx in torch.randperm(800).split(40):
        loss = nn.functional.cross_entropy(net(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
