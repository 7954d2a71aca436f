import torch
import torch.nn as nn
from torch.func import functional_call

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(1, 24), nn.Tanh(), nn.Linear(24, 1))
opt = torch.optim.Adam(net.parameters(), lr=2e-3)
for step in range(40):
    total = 0.0
    opt.zero_grad()
    for _ in range(3):
        a, b = torch.rand(2) + 0.5
        x, x2 = torch.rand(10, 1) * 4 - 2, torch.rand(10, 1) * 4 - 2
        params = dict(net.named_parameters())
        support = nn.functional.mse_loss(functional_call(net, params, x), a * torch.sin(x + b))
        grads = torch.autograd.grad(support, list(params.values()), create_graph=True)
        fast = {k: v - 0.05 * g for (k, v), g in zip(params.items(), grads)}
        query = nn.functional.mse_loss(functional_call(net, fast, x2), a * torch.sin(x2 + b))
        (query / 3).backward()
        total += query.item()
    opt.step()
    if step % 10 == 9:
        print(f"step {step} query {total / 3:.4f}")
