"""In-place operations everywhere: activations on hooked outputs, residuals, views, masks, and user hooks that change gradients."""

import torch
from evidence import leave, seed
from torch import nn
from torch.nn import functional as F


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)
        self.gate = nn.Linear(8, 8)
        self.act = nn.ReLU(inplace=True)
        self.keep = nn.Identity()

    def forward(self, x):
        x = self.act(self.a(x))
        y = self.b(x)
        y += x
        y[:, :2].mul_(0.5)
        y = F.leaky_relu(self.keep(y), 0.1, inplace=True)
        y = y * self.gate(y).sigmoid()
        z = self.c(y).view(-1, 2, 4)
        z[:, 0].add_(1.0)
        z.masked_fill_(z > 3, 3.0)
        return z.flatten(1).clamp_(-5, 5)


seed(11)
model = Net()
model.gate.register_full_backward_hook(lambda module, grad_in, grad_out: (grad_in[0] * 0.9,))
model.a.weight.register_hook(lambda grad: grad * 1.1)
model.keep.register_forward_hook(lambda module, args, out: out * 1.01)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
losses = []
for _ in range(8):
    x = torch.randn(6, 8)
    loss = (model(x) - x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
leave(losses, {"model": model}, [optimizer])
