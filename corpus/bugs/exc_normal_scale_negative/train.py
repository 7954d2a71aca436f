# pattern source: pytorch/pytorch#18133, USFlows/cjd-flows#68, stable-baselines3 class "Expected parameter scale"
import torch
import torch.nn as nn
from torch.distributions import Independent, Normal

torch.manual_seed(9)


class Forecaster(nn.Module):
    def __init__(self, d=32, horizon=4):
        super().__init__()
        self.rnn = nn.GRU(1, d, batch_first=True)
        self.loc = nn.Linear(d, horizon)
        self.scale = nn.Linear(d, horizon)

    def forward(self, past):
        h = self.rnn(past.unsqueeze(-1))[1][-1]
        mu = self.loc(h)
        sigma = 1.0 + self.scale(h)
        return mu, sigma


def series(n=48, t=20):
    phase, freq = 6.28 * torch.rand(n, 1), 0.2 + 0.3 * torch.rand(n, 1)
    x = torch.sin(freq * torch.arange(t) + phase) + 0.03 * torch.randn(n, t)
    return x[:, :16], x[:, 16:]


def nll(params, target):
    mu, sigma = params
    return -Independent(Normal(mu, sigma), 1).log_prob(target).mean()


model = Forecaster()
opt = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(120):
    past, future = series()
    loss = nll(model(past), future)
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    print(f"step {step} nll {loss.item():.4f}")
