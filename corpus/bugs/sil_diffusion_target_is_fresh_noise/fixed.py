# pattern source: ecmwf/WeatherGenerator#2733 (two random draws), DDPM re-implementation class (own)
import torch
import torch.nn as nn

torch.manual_seed(0)
STEPS = 50
alpha_bar = torch.cumprod(1 - torch.linspace(1e-3, 0.15, STEPS), 0)


class Denoiser(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.time = nn.Embedding(STEPS, 32)
        self.net = nn.Sequential(nn.Linear(2 + 32, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 2))

    def forward(self, x, t):
        return self.net(torch.cat([x, self.time(t)], 1))


def q_sample(x0, t, noise):
    a = alpha_bar[t][:, None]
    return a.sqrt() * x0 + (1 - a).sqrt() * noise


def train_step(model, x0):
    t = torch.randint(0, STEPS, (len(x0),))
    noise = torch.randn_like(x0)
    xt = q_sample(x0, t, noise)
    return nn.functional.mse_loss(model(xt, t), noise)


model = Denoiser()
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
total = 0.0
for step in range(800):
    angle = torch.rand(256) * 6.2832
    x0 = torch.stack([angle.cos(), angle.sin()], 1) * 1.5 + 0.05 * torch.randn(256, 2)
    loss = train_step(model, x0)
    opt.zero_grad()
    loss.backward()
    opt.step()
    total += loss.item() / 100
    if step % 100 == 99:
        print(f"step {step} loss {total:.4f}")
        total = 0.0
