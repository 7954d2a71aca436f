"""An exact Gaussian process of GPyTorch."""

# needs: gpytorch
import gpytorch
import torch
from fingerprint import report

torch.manual_seed(0)
x = torch.linspace(0, 1, 60)
y = torch.sin(x * 6.28) + 0.1 * torch.randn(60)


class GP(gpytorch.models.ExactGP):
    def __init__(self, x, y, likelihood):
        super().__init__(x, y, likelihood)
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


likelihood = gpytorch.likelihoods.GaussianLikelihood()
model = GP(x, y, likelihood)
model.train()
likelihood.train()
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
mll = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
for step in range(40):
    optimizer.zero_grad()
    loss = -mll(model(x), y)
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(step, f"{loss.item():.5f}")
model.eval()
likelihood.eval()
with torch.no_grad():
    print(f"{likelihood(model(torch.linspace(0, 1, 5))).mean.sum().item():.4f}")
report(model, likelihood, optimizer)
