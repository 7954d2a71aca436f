"""REINFORCE with a baseline on a corridor."""
import torch
from torch import nn
from torch.distributions import Categorical

torch.manual_seed(1)
N = 8
policy = nn.Sequential(nn.Linear(N, 24), nn.Tanh(), nn.Linear(24, 2))
value = nn.Sequential(nn.Linear(N, 24), nn.Tanh(), nn.Linear(24, 1))
opt = torch.optim.Adam(list(policy.parameters()) + list(value.parameters()), lr=8e-3)
eye = torch.eye(N)


def episode():
    at, states, actions, rewards = 2, [], [], []
    for _ in range(20):
        with torch.no_grad():
            a = Categorical(logits=policy(eye[at])).sample()
        states.append(at)
        actions.append(a)
        at = max(0, at - 1) if a.item() == 0 else at + 1
        rewards.append(1.0 if at == N - 1 else -0.02)
        if at == N - 1:
            break
    g, returns = 0.0, []
    for r in reversed(rewards):
        g = r + 0.97 * g
        returns.insert(0, g)
    return states, actions, returns, sum(rewards)


history = []
for it in range(180):
    states, actions, returns, total = [], [], [], 0.0
    for _ in range(5):
        s, a, r, t = episode()
        states += s
        actions += a
        returns += r
        total += t / 5
    x, ret = eye[torch.tensor(states)], torch.tensor(returns)
    v = value(x).squeeze(1)
    advantage = (ret - v).detach()
    dist = Categorical(logits=policy(x))
    loss = -(dist.log_prob(torch.stack(actions)) * advantage).mean() + 0.5 * (v - ret).pow(2).mean() - 0.01 * dist.entropy().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    history.append(total)
print(f"final return: {sum(history[-20:]) / 20:.3f}")
