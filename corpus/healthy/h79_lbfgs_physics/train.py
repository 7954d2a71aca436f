import torch
import torch.nn as nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(1, 20), nn.Tanh(), nn.Linear(20, 20), nn.Tanh(), nn.Linear(20, 1)).double()
t = torch.linspace(0, 2, 40, dtype=torch.float64)[:, None].requires_grad_()
opt = torch.optim.LBFGS(net.parameters(), lr=1.0, max_iter=10, line_search_fn="strong_wolfe")


def closure():
    opt.zero_grad()
    u = net(t)
    (du,) = torch.autograd.grad(u.sum(), t, create_graph=True)
    (ddu,) = torch.autograd.grad(du.sum(), t, create_graph=True)
    loss = (ddu + 4 * u).pow(2).mean() + (u[0] - 1).pow(2).sum() + du[0].pow(2).sum()
    loss.backward()
    return loss


for step in range(12):
    loss = opt.step(closure)
    print(f"step {step} loss {loss.item():.6f}")
