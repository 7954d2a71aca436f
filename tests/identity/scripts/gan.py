"""A DCGAN-like pair with spectral norm and two optimizers, the critic updated twice a generator step, weights averaged."""

import torch
from evidence import leave, seed
from torch import nn

seed(4)
G = nn.Sequential(
    nn.ConvTranspose2d(6, 8, 4, 1, 0), nn.BatchNorm2d(8), nn.ReLU(True), nn.ConvTranspose2d(8, 1, 4, 2, 1), nn.Tanh()
)
D = nn.Sequential(
    nn.utils.parametrizations.spectral_norm(nn.Conv2d(1, 8, 4, 2, 1)), nn.LeakyReLU(0.2, inplace=True), nn.Dropout(0.2),
    nn.Flatten(), nn.Linear(8 * 16, 1),
)  # fmt: skip
average = torch.optim.swa_utils.AveragedModel(G, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
optimizer_g = torch.optim.Adam(G.parameters(), lr=2e-3, betas=(0.5, 0.999))
optimizer_d = torch.optim.RMSprop(D.parameters(), lr=1e-3)
criterion = nn.BCEWithLogitsLoss()
losses = []
for _ in range(6):
    for _ in range(2):
        real = torch.rand(4, 1, 8, 8) * 2 - 1
        fake = G(torch.randn(4, 6, 1, 1)).detach()
        optimizer_d.zero_grad()
        loss_real = criterion(D(real), torch.ones(4, 1))
        loss_real.backward()
        loss_fake = criterion(D(fake), torch.zeros(4, 1))
        loss_fake.backward()
        optimizer_d.step()
    optimizer_g.zero_grad()
    loss_g = criterion(D(G(torch.randn(4, 6, 1, 1))), torch.ones(4, 1))
    loss_g.backward()
    optimizer_g.step()
    average.update_parameters(G)
    losses += [loss_real.item(), loss_fake.item(), loss_g.item()]
leave(losses, {"G": G, "D": D, "average": average}, [optimizer_g, optimizer_d])
