import torch
import torch.nn as nn
from torch.distributions import Categorical

torch.manual_seed(0)


class ActorCritic(nn.Module):
    def __init__(self, n_obs=6, n_act=4):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(n_obs, 48), nn.Tanh())
        self.pi = nn.Linear(48, n_act)
        self.v = nn.Linear(48, 1)
        nn.init.zeros_(self.pi.weight)
        nn.init.zeros_(self.pi.bias)

    def forward(self, obs):
        h = self.body(obs)
        return Categorical(logits=self.pi(h)), self.v(h).squeeze(-1)


def reward(obs, act):
    best = obs[:, :4].argmax(1)
    return (act == best).float() + 0.3 * torch.randn(len(obs))


agent = ActorCritic()
opt = torch.optim.Adam(agent.parameters(), lr=5e-3)
for it in range(300):
    obs = torch.randn(64, 6)
    dist, value = agent(obs)
    act = dist.sample()
    r = reward(obs, act)
    adv = (r - value).detach()
    policy_loss = -(dist.log_prob(act) * adv).mean()
    value_loss = nn.functional.mse_loss(value, r)
    loss = policy_loss + 0.5 * value_loss - 0.01 * dist.entropy().mean()
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
    opt.step()
    if it % 50 == 49:
        obs = torch.randn(500, 6)
        right = (agent(obs)[0].probs.argmax(1) == obs[:, :4].argmax(1)).float().mean().item()
        print(f"it {it} loss {loss.item():+.4f} mean reward {r.mean().item():.3f} greedy right {right:.3f}")
