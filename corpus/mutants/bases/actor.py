"""Actor-critic with GAE on a one-dimensional 'catch the drifting target' task: vectorised environments, entropy bonus, shared trunk."""
import torch
import torch.nn as nn
from torch.distributions import Categorical

ENVS, HORIZON, UPDATES = 32, 16, 90


class Drift:
    """Positions in [-1, 1]; actions move left, stay or right; the reward is high near the target, which drifts."""

    def __init__(self, n, gen):
        self.n, self.gen = n, gen
        self.reset(torch.ones(n, dtype=torch.bool))

    def reset(self, which):
        if not hasattr(self, "pos"):
            self.pos, self.goal, self.t = torch.zeros(self.n), torch.zeros(self.n), torch.zeros(self.n)
        k = int(which.sum())
        self.pos[which] = torch.rand(k, generator=self.gen) * 2 - 1
        self.goal[which] = torch.rand(k, generator=self.gen) * 2 - 1
        self.t[which] = 0

    def observe(self):
        return torch.stack([self.pos, self.goal, self.goal - self.pos, self.t / 20], dim=1)

    def step(self, action):
        self.pos = (self.pos + 0.15 * (action.float() - 1)).clamp(-1, 1)
        self.goal = (self.goal + 0.02 * torch.randn(self.n, generator=self.gen)).clamp(-1, 1)
        self.t += 1
        distance = (self.pos - self.goal).abs()
        reward = 0.5 - distance
        done = self.t >= 20
        self.reset(done)
        return self.observe(), reward, done.float()


class Policy(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(4, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())
        self.actor = nn.Linear(hidden, 3)
        self.critic = nn.Linear(hidden, 1)

    def forward(self, obs):
        h = self.trunk(obs)
        return Categorical(logits=self.actor(h)), self.critic(h).squeeze(-1)


def advantages(rewards, values, dones, last_value, gamma=0.95, lam=0.9):
    out, running = torch.zeros_like(rewards), torch.zeros(rewards.size(1))
    for t in reversed(range(len(rewards))):
        following = last_value if t == len(rewards) - 1 else values[t + 1]
        delta = rewards[t] + gamma * following * (1 - dones[t]) - values[t]
        running = delta + gamma * lam * (1 - dones[t]) * running
        out[t] = running
    return out


@torch.no_grad()
def mean_reward(policy, steps=60):
    env = Drift(64, torch.Generator().manual_seed(99))
    obs, total = env.observe(), 0.0
    for _ in range(steps):
        dist, _ = policy(obs)
        obs, reward, _ = env.step(dist.probs.argmax(-1))
        total += reward.mean().item()
    return total / steps


def main():
    torch.manual_seed(1)
    env = Drift(ENVS, torch.Generator().manual_seed(1))
    policy = Policy()
    opt = torch.optim.Adam(policy.parameters(), lr=4e-3)
    obs = env.observe()
    for update in range(UPDATES):
        rows = []
        with torch.no_grad():
            for _ in range(HORIZON):
                dist, value = policy(obs)
                action = dist.sample()
                following, reward, done = env.step(action)
                rows.append((obs, action, reward, done, value))
                obs = following
            last_value = policy(obs)[1]
        observations, actions, rewards, dones, values = (torch.stack(part) for part in zip(*rows))
        adv = advantages(rewards, values, dones, last_value)
        returns = (adv + values).reshape(-1)
        adv = (adv - adv.mean()) / (adv.std() + 1e-8)
        dist, value = policy(observations.reshape(-1, 4))
        log_prob = dist.log_prob(actions.reshape(-1))
        policy_loss = -(log_prob * adv.reshape(-1)).mean()
        value_loss = (value - returns).pow(2).mean()
        loss = policy_loss + 0.5 * value_loss - 0.01 * dist.entropy().mean()
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
        opt.step()
        if update % 30 == 29:
            print(f"update {update} loss {loss.item():.3f} reward {mean_reward(policy):.3f}")
    print(f"final reward: {mean_reward(policy):.4f}")


main()
