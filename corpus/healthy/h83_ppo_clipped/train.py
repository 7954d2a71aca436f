import torch
import torch.nn as nn
from torch.distributions import Categorical

torch.manual_seed(0)


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(5, 32), nn.Tanh())
        self.pi, self.v = nn.Linear(32, 3), nn.Linear(32, 1)

    def forward(self, s):
        h = self.body(s)
        return Categorical(logits=self.pi(h)), self.v(h).squeeze(-1)


ac = ActorCritic()
opt = torch.optim.Adam(ac.parameters(), lr=3e-3, eps=1e-5)
for rollout in range(12):
    s = torch.randn(128, 5)
    with torch.no_grad():
        dist, value = ac(s)
        a = dist.sample()
        old = dist.log_prob(a)
        reward = (a == s[:, :3].argmax(1)).float()
    adv = reward - value
    adv = (adv - adv.mean()) / (adv.std() + 1e-8)
    for _ in range(4):
        for i in torch.randperm(128).split(32):
            dist, v = ac(s[i])
            ratio = (dist.log_prob(a[i]) - old[i]).exp()
            policy = -torch.min(ratio * adv[i], ratio.clamp(0.8, 1.2) * adv[i]).mean()
            loss = policy + 0.5 * (v - reward[i]).pow(2).mean() - 0.01 * dist.entropy().mean()
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(ac.parameters(), 0.5)
            opt.step()
    print(f"rollout {rollout} reward {reward.mean().item():.3f}")
