import math
import torch
import torch.nn as nn

torch.manual_seed(1)


class MDN(nn.Module):
    def __init__(self, hidden=32, k=3):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(1, hidden), nn.Tanh())
        self.pi = nn.Linear(hidden, k)
        self.mu = nn.Linear(hidden, k)
        self.log_sigma = nn.Linear(hidden, k)

    def forward(self, x):
        h = self.body(x)
        return self.pi(h).softmax(1), self.mu(h), self.log_sigma(h).exp()


def mdn_loss(pi, mu, sigma, y):
    expo = -0.5 * ((y - mu) / sigma) ** 2
    dens = pi * torch.exp(expo) / (sigma * math.sqrt(2 * math.pi))
    return -torch.logsumexp(pi.log() + expo - sigma.log() - 0.919, 1).mean()


x = torch.rand(2000, 1) * 4 - 2
y = 3 * torch.sin(2 * x) + torch.randn(2000, 1) * 0.3
y[1200] = 40.0  # an outlier of the sensor
model = MDN()
opt = torch.optim.Adam(model.parameters(), lr=5e-3)
order = torch.randperm(2000)
for step in range(100):
    i = order[(step * 20) % 2000 : (step * 20) % 2000 + 20]
    pi, mu, sigma = model(x[i])
    loss = mdn_loss(pi, mu, sigma, y[i])
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 10 == 9:
        print(f"step {step} nll {loss.item():.4f}")
