import torch
from torch import nn

torch.manual_seed(0)


class GaussianLikelihood(nn.Module):
    def __init__(self):
        super().__init__()
        self.sigma = nn.Parameter(torch.tensor(1.0))

    def forward(self, mean, y):
        return (torch.log(self.sigma) + 0.5 * ((y - mean) / self.sigma) ** 2).mean()


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.mean = nn.Linear(3, 1)
        self.likelihood = GaussianLikelihood()

    def forward(self, x, y):
        return self.likelihood(self.mean(x).squeeze(1), y)


x = torch.randn(400, 3)
y = x @ torch.tensor([1.0, -1.0, 0.5])
model = Regressor()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
for step in range(300):
    idx = torch.randint(0, 400, (50,))
    loss = model(x[idx], y[idx])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 25 == 0:
        print(step, loss.item())
