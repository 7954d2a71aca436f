import torch
import torch.nn as nn

torch.manual_seed(0)
critic = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 1))
opt = torch.optim.RMSprop(critic.parameters(), lr=5e-4)
for step in range(80):
    real, fake = torch.randn(32, 6) + 0.5, torch.randn(32, 6)
    loss = critic(fake).mean() - critic(real).mean()
    with torch.no_grad():
        for p in critic.parameters():
            p.clamp_(-0.1, 0.1)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 20 == 19:
        print(f"step {step} loss {loss.item():.4f}")
