import torch
from torch import nn
from torch.optim.swa_utils import SWALR, AveragedModel, update_bn

torch.manual_seed(0)
y = torch.randint(0, 4, (640,))
x = torch.randn(4, 12)[y] + 0.6 * torch.randn(640, 12)
batches = [(x[i], y[i]) for i in torch.randperm(640).split(40)]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(12, affine=False)
        self.fc1 = nn.Linear(12, 32)
        self.fc2 = nn.Linear(32, 4)

    def forward(self, x):
        return self.fc2(torch.relu(self.fc1(self.norm(x))))


model = Net()
with torch.no_grad():
    model(x)
averaged = AveragedModel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
swa = SWALR(optimizer, swa_lr=0.02, anneal_epochs=2)
for epoch in range(10):
    model.train()
    model.norm.eval()
    for xb, yb in batches:
        loss = nn.functional.cross_entropy(model(xb), yb)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if epoch >= 5:
        averaged.update_parameters(model)
        swa.step()
    print(epoch, loss.item())
update_bn(((xb, yb) for xb, yb in batches), averaged)
