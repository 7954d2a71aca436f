# pattern source: RITCHIEHuang/DeepRL_Algorithms#13, PacktPublishing/Deep-Reinforcement-Learning-Hands-On#33, thu-ml/tianshou#162
import torch
import torch.nn as nn
from torch.distributions import Normal

torch.manual_seed(0)


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, 1))
        self.log_std = nn.Parameter(torch.full((1,), -0.7))

    def forward(self, obs):
        return Normal(self.body(obs), self.log_std.exp())


def reward_of(obs, act):
    best = obs[:, 0] - 0.5 * obs[:, 1]
    return -(act.squeeze(1) - best) ** 2


actor = Actor()
critic = nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, 1))
actor_opt = torch.optim.Adam(actor.parameters(), lr=5e-3)
critic_opt = torch.optim.Adam(critic.parameters(), lr=1e-2)
for it in range(300):
    obs = torch.randn(128, 3)
    dist = actor(obs)
    act = dist.sample()
    reward = reward_of(obs, act)

    value = critic(obs).squeeze(1)
    critic_loss = nn.functional.mse_loss(value, reward)
    critic_opt.zero_grad()
    critic_loss.backward()
    critic_opt.step()

    adv = reward - value.detach()
    adv = (adv - adv.mean()) / (adv.std() + 1e-8)
    log_prob = dist.log_prob(act)
    actor_loss = -(log_prob.squeeze(1) * adv).mean()
    actor_opt.zero_grad()
    actor_loss.backward()
    actor_opt.step()
    if it % 50 == 49:
        test = torch.randn(2000, 3)
        score = reward_of(test, actor(test).mean).mean().item()
        print(f"iter {it} actor loss {actor_loss.item():.4f} critic loss {critic_loss.item():.4f} mean reward {score:.4f}")
