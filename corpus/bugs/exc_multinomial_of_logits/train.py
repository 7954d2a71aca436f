# pattern source: YehLi/xmodaler#48, kakaoenterprise/JORLDY#174 class (probability tensor contains element < 0)
import torch
import torch.nn as nn

torch.manual_seed(4)


class Actor(nn.Module):
    def __init__(self, n_obs=6, n_actions=4):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(n_obs, 48), nn.Tanh())
        self.pi = nn.Linear(48, n_actions)
        self.value = nn.Linear(48, 1)

    def forward(self, obs):
        h = self.body(obs)
        return self.pi(h), self.value(h).squeeze(-1)


class Bandit:
    """the best arm depends on the context"""

    def __init__(self):
        self.w = torch.randn(6, 4)

    def reset(self, n):
        self.obs = torch.randn(n, 6)
        return self.obs

    def step(self, action):
        best = (self.obs @ self.w).argmax(1)
        return (action == best).float()


env, agent = Bandit(), Actor()
opt = torch.optim.Adam(agent.parameters(), lr=5e-3)
for step in range(80):
    obs = env.reset(64)
    probs, value = agent(obs)
    action = torch.multinomial(probs, 1).squeeze(1)
    reward = env.step(action)
    logp = probs.gather(1, action[:, None]).squeeze(1).log()
    advantage = reward - value
    loss = -(logp * advantage.detach()).mean() + advantage.pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 10 == 0:
        print(f"step {step} loss {loss.item():.4f} reward {reward.mean().item():.3f}")
