import copy
import torch
import torch.nn as nn

torch.manual_seed(0)
meta = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1))
meta_opt = torch.optim.SGD(meta.parameters(), lr=0.3)
for task in range(60):
    amplitude, phase = torch.rand(1) * 2 + 0.5, torch.rand(1) * 3.14
    fast = copy.deepcopy(meta)
    inner = torch.optim.SGD(fast.parameters(), lr=0.02)
    for _ in range(5):
        x = torch.rand(16, 1) * 6 - 3
        loss = nn.functional.mse_loss(fast(x), amplitude * torch.sin(x + phase))
        inner.zero_grad()
        loss.backward()
        inner.step()
    meta_opt.zero_grad()
    for p, q in zip(meta.parameters(), fast.parameters()):
        p.grad = (p - q).detach()
    meta_opt.step()
    if task % 10 == 9:
        print(f"task {task} loss {loss.item():.4f}")
