import torch
from torch import nn

torch.manual_seed(0)


class Quantiser(nn.Module):
    def __init__(self, codes=16, d=8):
        super().__init__()
        self.codebook = nn.Embedding(codes, d)

    def forward(self, z):
        distance = torch.cdist(z, self.codebook.weight)
        code = self.codebook(distance.argmin(1))
        self.commitment = nn.functional.mse_loss(z, code.detach()) + nn.functional.mse_loss(z.detach(), code)
        code = z + (code - z).detach()
        return code


class VQ(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 8))
        self.quantiser = Quantiser()
        self.decoder = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 20))

    def forward(self, x):
        return self.decoder(self.quantiser(self.encoder(x)))


data = torch.randn(10, 20)[torch.randint(0, 10, (500,))] + 0.1 * torch.randn(500, 20)
model = VQ()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(200):
    xb = data[torch.randint(0, 500, (64,))]
    loss = nn.functional.mse_loss(model(xb), xb)
    loss = loss + model.quantiser.commitment
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 39:
        print(step, loss.item())
