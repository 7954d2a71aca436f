# pattern source: GPflow/GPflow#900, MCZhi/DIPP#6, aleximmer/heteroscedastic-nn#2
import math
import torch
import torch.nn as nn

torch.manual_seed(2)


class DeepKernelGP(nn.Module):
    """Gaussian process on the features of a small network"""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(2, 24), nn.Tanh(), nn.Linear(24, 2))
        self.log_amp = nn.Parameter(torch.zeros(()))
        self.log_noise = nn.Parameter(torch.tensor(-2.0))

    def kernel(self, x):
        f = self.features(x)
        d2 = (f[:, None] - f[None]).pow(2).sum(-1)
        return self.log_amp.exp() * torch.exp(-0.5 * d2) + (self.log_noise.exp() + 1e-4) * torch.eye(len(f))

    def neg_log_likelihood(self, x, y):
        K = self.kernel(x)
        L = torch.linalg.cholesky(K)
        a = torch.cholesky_solve(y[:, None], L)
        fit = 0.5 * (y[:, None] * a).sum()
        return (fit + L.diagonal().log().sum()) / len(y) + 0.5 * math.log(2 * math.pi)


x = torch.rand(80, 2) * 4
y = torch.sin(x[:, 0]) * torch.cos(x[:, 1]) + 0.1 * torch.randn(80)
gp = DeepKernelGP()
opt = torch.optim.Adam(gp.parameters(), lr=1e-2)
for step in range(60):
    loss = gp.neg_log_likelihood(x, y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 10 == 0:
        print(f"step {step} nll {loss.item():.4f}")
print(f"final nll {loss.item():.4f}")
