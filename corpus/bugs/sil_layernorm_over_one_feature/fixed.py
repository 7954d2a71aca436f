import torch
import torch.nn as nn

torch.manual_seed(0)


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(10, 32), nn.LayerNorm(32), nn.Tanh())
        self.value = nn.Sequential(nn.Linear(32, 1))

    def forward(self, s):
        return self.value(self.body(s)).squeeze(-1)


states = torch.randn(1000, 10)
returns = states[:, 0] * 2 + states[:, 1].abs()
critic = Critic()
opt = torch.optim.Adam(critic.parameters(), lr=3e-3)
for epoch in range(5):
    for i in torch.randperm(1000).split(50):
        loss = nn.functional.mse_loss(critic(states[i]), returns[i])
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
