import torch
import torch.nn as nn

torch.manual_seed(0)
G = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
D = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
opt_g = torch.optim.Adam(G.parameters(), lr=1e-3)
opt_d = torch.optim.Adam(G.parameters(), lr=1e-3)
bce = nn.BCEWithLogitsLoss()
real_data = torch.randn(1000, 2) * 0.5 + 2
one, zero = torch.ones(50, 1), torch.zeros(50, 1)
for step in range(150):
    real = real_data[torch.randint(0, 1000, (50,))]
    fake = G(torch.randn(50, 4))
    loss_d = bce(D(real), one) + bce(D(fake.detach()), zero)
    opt_d.zero_grad()
    D.zero_grad()
    loss_d.backward()
    opt_d.step()
    loss_g = bce(D(fake), one)
    opt_g.zero_grad()
    loss_g.backward()
    opt_g.step()
    if step % 50 == 49:
        print(f"step {step} d {loss_d.item():.4f} g {loss_g.item():.4f}")
