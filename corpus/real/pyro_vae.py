"""Stochastic variational inference of Pyro: a small VAE and a Bayesian regression with an automatic guide."""

# needs: pyro-ppl
import pyro
import pyro.distributions as dist
import torch
from fingerprint import report
from pyro.infer import SVI, Trace_ELBO
from pyro.infer.autoguide import AutoDiagonalNormal
from torch import nn

pyro.set_rng_seed(0)
data = (torch.rand(128, 16) < torch.rand(1, 16)).float()


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(16, 32), nn.Softplus(), nn.Linear(32, 6))
        self.decoder = nn.Sequential(nn.Linear(3, 32), nn.Softplus(), nn.Linear(32, 16))

    def model(self, x):
        pyro.module("decoder", self.decoder)
        with pyro.plate("data", len(x)):
            z = pyro.sample("z", dist.Normal(torch.zeros(len(x), 3), 1.0).to_event(1))
            pyro.sample("x", dist.Bernoulli(logits=self.decoder(z)).to_event(1), obs=x)

    def guide(self, x):
        pyro.module("encoder", self.encoder)
        with pyro.plate("data", len(x)):
            mean, scale = self.encoder(x).chunk(2, -1)
            pyro.sample("z", dist.Normal(mean, scale.exp()).to_event(1))


vae = VAE()
svi = SVI(vae.model, vae.guide, pyro.optim.Adam({"lr": 1e-2}), Trace_ELBO())
for epoch in range(12):
    losses = [svi.step(data[k : k + 32]) for k in range(0, 128, 32)]
    if epoch % 4 == 0:
        print(epoch, f"{sum(losses) / 128:.5f}")
x = torch.randn(60, 2)
y = x @ torch.tensor([1.0, -2.0]) + 0.1 * torch.randn(60)


def regression(x, y):
    weight = pyro.sample("weight", dist.Normal(torch.zeros(2), 2.0).to_event(1))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Normal(x @ weight, 0.1), obs=y)


guide = AutoDiagonalNormal(regression)
svi = SVI(regression, guide, pyro.optim.Adam({"lr": 0.02}), Trace_ELBO())
for _ in range(80):
    loss = svi.step(x, y)
print(f"{loss:.3f}", [f"{value:.3f}" for value in guide.median()["weight"].tolist()])
report(vae, guide)
