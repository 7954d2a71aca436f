"""MAML with higher: functional copies of a module, unrolled inner loop, second order."""

# needs: higher
import higher
import torch
from fingerprint import report
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(1, 40), nn.ReLU(), nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 1))
meta = torch.optim.Adam(net.parameters(), 1e-3)
inner = torch.optim.SGD(net.parameters(), 0.02)
for i in range(60):
    meta.zero_grad()
    total = 0.0
    for task in range(4):
        a, p = torch.rand(1) * 4 + 0.5, torch.rand(1) * 3.14
        xs, xq = torch.rand(10, 1) * 10 - 5, torch.rand(10, 1) * 10 - 5
        with higher.innerloop_ctx(net, inner, copy_initial_weights=False) as (f, diff):
            for _ in range(2):
                diff.step(nn.functional.mse_loss(f(xs), a * torch.sin(xs + p)))
            q = nn.functional.mse_loss(f(xq), a * torch.sin(xq + p))
            q.backward()
            total += q.item()
    meta.step()
    if i % 20 == 19:
        print(i, f"{total / 4:.6f}")
report(net, meta)
