import io

import torch
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.a = nn.Linear(6, width)
        self.b = nn.Linear(width, 3)

    def forward(self, x):
        return self.b(torch.relu(self.a(x)))


def load(buffer):
    buffer.seek(0)
    net = Net()
    net.load_state_dict(torch.load(buffer))
    return net


x = torch.randn(500, 6)
y = x[:, :3].argmax(1)
model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
checkpoint = io.BytesIO()
torch.save(model.state_dict(), checkpoint)
model = load(checkpoint)
for step in range(150):
    idx = torch.randint(0, 500, (64,))
    loss = nn.functional.cross_entropy(model(x[idx]), y[idx])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 30 == 29:
        print(step, loss.item())
