import torch
import torch.nn as nn
from torch.distributions import Categorical

torch.manual_seed(0)
SIZE, HORIZON, ENVS = 7, 20, 16


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(SIZE, 32), nn.Tanh())
        self.pi, self.v = nn.Linear(32, 3), nn.Linear(32, 1)
        nn.init.zeros_(self.pi.weight)
        nn.init.zeros_(self.pi.bias)

    def forward(self, s):
        h = self.body(s)
        return Categorical(logits=self.pi(h)), self.v(h).squeeze(-1)


def one_hot(pos):
    return nn.functional.one_hot(pos, SIZE).float()


model = ActorCritic()
opt = torch.optim.RMSprop(model.parameters(), lr=3e-3, eps=1e-5)
for it in range(80):
    pos = torch.randint(0, SIZE, (ENVS,))
    logps, values, rewards, ents = [], [], [], []
    for _ in range(HORIZON):
        dist, v = model(one_hot(pos))
        a = dist.sample()
        pos = (pos + a - 1).clamp(0, SIZE - 1)
        rewards.append((pos == SIZE // 2).float() - 0.05 * (a != 1).float())
        logps.append(dist.log_prob(a))
        values.append(v)
        ents.append(dist.entropy())
    with torch.no_grad():
        g = model(one_hot(pos))[1]
        returns = []
        for r in reversed(rewards):
            g = r + 0.9 * g
            returns.append(g)
    returns = torch.stack(returns[::-1])
    values, logps = torch.stack(values), torch.stack(logps)
    adv = returns - values.detach()
    adv = (adv - adv.mean()) / (adv.std() + 1e-6)
    policy_loss = -(logps * adv).mean()
    loss = policy_loss + 0.5 * nn.functional.mse_loss(values, returns) - 0.01 * torch.stack(ents).mean()
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    opt.step()
    if it % 10 == 9:
        print(f"iter {it} loss {loss.item():.4f} policy {policy_loss.item():.4f} reward {torch.stack(rewards).mean().item():.3f}")
