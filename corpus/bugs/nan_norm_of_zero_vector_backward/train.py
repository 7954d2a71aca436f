import torch
import torch.nn as nn

torch.manual_seed(0)


class Embedder(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(8, 16)
        self.fc2 = nn.Linear(16, 8, bias=False)

    def normalize(self, z):
        length = (z ** 2).sum(dim=1, keepdim=True).sqrt()
        return z / (length + 1e-6)

    def forward(self, x):
        return self.normalize(self.fc2(torch.relu(self.fc1(x))))


x = torch.randn(400, 8)
y = torch.randn(400, 8)
y = y / y.norm(dim=1, keepdim=True)
x[123] = 0.0
net = Embedder()
net.fc1.bias.requires_grad_(False).zero_()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(80):
    idx = torch.randint(0, 400, (40,))
    if step == 20:
        idx[0] = 123
    loss = (1 - (net(x[idx]) * y[idx]).sum(1)).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 10 == 9:
        print(f"step {step} loss {loss.item():.4f}")
