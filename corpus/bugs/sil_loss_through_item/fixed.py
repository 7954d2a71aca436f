import torch
import torch.nn as nn

torch.manual_seed(0)


class AutoEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
        self.decoder = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 16))

    def forward(self, x):
        z = self.encoder(x)
        return self.decoder(z), z


data = torch.randn(1000, 4) @ torch.randn(4, 16)
model = AutoEncoder()
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
for epoch in range(6):
    for idx in torch.randperm(1000).split(50):
        recon, _ = model(data[idx])
        loss = nn.functional.mse_loss(recon, data[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
