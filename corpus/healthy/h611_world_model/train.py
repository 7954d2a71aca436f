"""Dynamics: states and actions at t, states and rewards at t + 1, taken from long tables."""

import torch, torch.nn as nn, torch.nn.functional as F

torch.manual_seed(14)
T = 4000
obs, act, rew = torch.zeros(T, 4), torch.randn(T, 2), torch.zeros(T)
A = torch.randn(4, 4) * 0.35
Bm = torch.randn(2, 4) * 0.8
for t in range(T - 1):
    obs[t + 1] = torch.tanh(obs[t] @ A + act[t] @ Bm) + 0.02 * torch.randn(4)
    rew[t + 1] = -obs[t + 1].square().sum()


class World(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU())
        self.state, self.reward = nn.Linear(64, 4), nn.Linear(64, 1)

    def forward(self, o, a):
        h = self.body(torch.cat([o, a], 1))
        return self.state(h), self.reward(h).squeeze(1)


net = World()
opt = torch.optim.Adam(net.parameters(), lr=2e-3)
for step in range(400):
    idx = torch.randint(0, 3500, (64,))
    state, reward = net(obs[idx], act[idx])
    loss = F.mse_loss(state, obs[idx + 1]) + 0.1 * F.mse_loss(reward, rew[idx + 1])
    opt.zero_grad()
    loss.backward()
    opt.step()
print("final loss:", float(loss))
