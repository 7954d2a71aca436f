import torch
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.drop, self.norm = nn.Linear(4, 6), nn.Dropout(0.5), nn.BatchNorm1d(6)
        self.out = nn.Linear(6, 2)

    def forward(self, x, scale=1.0):
        return self.out(self.drop(self.norm(self.inner(x)).relu())) * scale


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(6):
    x = torch.randn(8, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=step % 2 == 1):
        p = model(x, scale=2.0).float().softmax(-1)
    p = p * (step < 3)
    loss = -p.log()[:, 0].mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
