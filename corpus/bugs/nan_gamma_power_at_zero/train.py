import torch
import torch.nn as nn

torch.manual_seed(3)


class ToneMap(nn.Module):
    def forward(self, linear):
        return linear ** (1 / 2.2)


class Renderer(nn.Module):
    def __init__(self):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(6, 48), nn.SiLU(), nn.Linear(48, 3))
        self.tone = ToneMap()

    def forward(self, rays):
        visible = (rays[:, 5:] < 0.995).float()
        return self.tone(nn.functional.softplus(self.mlp(rays)) * visible)


rays = torch.rand(1024, 6)
colours = torch.stack([rays[:, 0], rays[:, 1] * rays[:, 2], 1 - rays[:, 3]], 1).clamp(0, 1)
model = Renderer()
opt = torch.optim.Adam(model.parameters(), lr=2e-2)
for step in range(80):
    i = torch.randint(0, 1024, (64,))
    loss = nn.functional.mse_loss(model(rays[i]), colours[i])
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 20 == 0:
        print(f"step {step} loss {loss.item():.4f}")
