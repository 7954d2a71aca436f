import torch
from torch import nn

torch.manual_seed(0)


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return grad * s * (1 + x * (1 - s))


class Activation(nn.Module):
    def forward(self, x):
        return Swish.apply(x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(6, 32)
        self.act = Activation()
        self.out = nn.Linear(32, 1)

    def forward(self, x):
        return self.out(self.act(self.inp(x))).squeeze(1)


x = torch.randn(500, 6)
y = torch.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2]
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(200):
    idx = torch.randint(0, 500, (50,))
    loss = nn.functional.mse_loss(model(x[idx]), y[idx])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 0:
        print(step, loss.item())
