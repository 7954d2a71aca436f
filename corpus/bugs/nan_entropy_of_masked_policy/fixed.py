import torch
import torch.nn as nn

torch.manual_seed(0)


class Policy(nn.Module):
    def __init__(self, n_obs=8, n_actions=5):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(n_obs, 32), nn.Tanh())
        self.pi = nn.Linear(32, n_actions)

    def forward(self, obs, legal):
        logits = self.pi(self.trunk(obs))
        return logits.masked_fill(~legal, float("-inf")).softmax(-1)


def entropy(p):
    return -(p * p.clamp(min=1e-8).log()).sum(-1)


policy = Policy()
opt = torch.optim.RMSprop(policy.parameters(), lr=1e-3)
for episode in range(60):
    obs = torch.randn(24, 8)
    legal = torch.ones(24, 5, dtype=torch.bool)
    if episode > 15:  # harder levels forbid moves
        legal[:, 4] = obs[:, 0] > 0
    p = policy(obs, legal)
    action = torch.multinomial(p.detach().nan_to_num(1.0), 1).squeeze(1)
    reward = (action == (obs[:, 1] > 0).long()).float()
    logp = p.gather(1, action[:, None]).squeeze(1).clamp(min=1e-8).log()
    loss = -(logp * (reward - reward.mean())).mean() - 0.01 * entropy(p).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if episode % 10 == 9:
        print(f"episode {episode} reward {reward.mean().item():.3f}")
