import torch
import torch.nn as nn

torch.manual_seed(4)


def safe_cholesky(K):
    jitter = 0.0
    for attempt in range(6):
        try:
            return torch.linalg.cholesky(K + jitter * torch.eye(len(K))), attempt
        except torch.linalg.LinAlgError:
            jitter = 1e-4 * 10**attempt
    raise RuntimeError("kernel matrix is not positive definite")


class GP(nn.Module):
    def __init__(self):
        super().__init__()
        self.log_len = nn.Parameter(torch.tensor(0.5))
        self.log_amp = nn.Parameter(torch.tensor(0.0))
        self.mean = nn.Linear(1, 1)

    def forward(self, x, y):
        d2 = (x - x.T).pow(2)
        K = self.log_amp.exp() * torch.exp(-0.5 * d2 / self.log_len.exp() ** 2)
        L, attempts = safe_cholesky(K)
        r = y - self.mean(x)
        nll = 0.5 * (r * torch.cholesky_solve(r, L)).mean() + L.diagonal().log().mean()
        return nll, attempts


x = torch.linspace(0, 6, 40)[:, None]
y = torch.sin(2 * x) + 0.1 * torch.randn(40, 1)
gp = GP()
opt = torch.optim.Adam(gp.parameters(), lr=3e-2)
retries = 0
for step in range(80):
    loss, attempts = gp(x, y)
    retries += attempts
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(gp.parameters(), 5.0)
    opt.step()
    if step % 16 == 15:
        print(f"step {step} nll {loss.item():.4f} retries {retries}")
