"""BoTorch: GP fit by scipy, acquisition optimisation."""

# needs: botorch
import warnings

import torch

warnings.simplefilter("ignore")
from botorch.acquisition import LogExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf
from fingerprint import report
from gpytorch.mlls import ExactMarginalLogLikelihood

torch.manual_seed(0)
x = torch.rand(12, 2, dtype=torch.double)
f = lambda x: -((x - 0.4) ** 2).sum(-1, keepdim=True)
for i in range(3):
    gp = SingleTaskGP(x, f(x))
    fit_gpytorch_mll(ExactMarginalLogLikelihood(gp.likelihood, gp))
    c, v = optimize_acqf(
        LogExpectedImprovement(gp, best_f=f(x).max()),
        bounds=torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.double),
        q=1,
        num_restarts=3,
        raw_samples=16,
    )
    x = torch.cat([x, c])
    print(i, c.numpy().round(5))
report(gp)
