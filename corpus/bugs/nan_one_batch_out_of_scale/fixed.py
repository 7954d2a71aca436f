import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)



class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 32), nn.ReLU())
        self.head = nn.Linear(32, 3)

    def forward(self, x):
        return self.head(self.body(x))


x = torch.randn(640, 8)
y = (x[:, 0] + x[:, 1] > 0).long() + (x[:, 2] > 0.5).long()


def batch(step):
    index = torch.arange(16) + 16 * (step % 40)
    given = x[index]
    if step == 60:
        given = given * 1.0
    return given, y[index]


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
for step in range(100):
    given, target = batch(step)
    loss = F.cross_entropy(model(given), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(step, loss.item())
