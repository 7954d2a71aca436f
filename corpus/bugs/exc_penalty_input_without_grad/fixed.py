import torch
import torch.nn as nn

torch.manual_seed(0)
G = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
D = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
opt_g = torch.optim.Adam(G.parameters(), lr=1e-3, betas=(0.5, 0.9))
opt_d = torch.optim.Adam(D.parameters(), lr=1e-3, betas=(0.5, 0.9))


def penalty(real, fake):
    a = torch.rand(len(real), 1)
    mix = (a * real + (1 - a) * fake).requires_grad_()
    score = D(mix).sum()
    (grad,) = torch.autograd.grad(score, mix, create_graph=True)
    return ((grad.norm(2, dim=1) - 1) ** 2).mean()


for step in range(60):
    real = torch.randn(32, 2) * 0.3 + 1
    fake = G(torch.randn(32, 4)).detach()
    loss_d = D(fake).mean() - D(real).mean() + 10 * penalty(real, fake)
    opt_d.zero_grad()
    loss_d.backward()
    opt_d.step()
    if step % 3 == 2:
        loss_g = -D(G(torch.randn(32, 4))).mean()
        opt_g.zero_grad()
        loss_g.backward()
        opt_g.step()
    if step % 20 == 19:
        print(f"step {step} d {loss_d.item():.4f}")
