import torch
import torch.nn as nn

torch.manual_seed(0)
LENGTH = 6


class Chain:
    def reset(self):
        self.at, self.time = 0, 0
        return self.observe()

    def observe(self):
        return nn.functional.one_hot(torch.tensor(self.at), LENGTH).float()

    def step(self, action):
        self.at = max(0, min(LENGTH - 1, self.at + (1 if action == 1 else -1)))
        self.time += 1
        done = self.at == LENGTH - 1 or self.time >= 20
        return self.observe(), (1.0 if self.at == LENGTH - 1 else -0.05), done


policy = nn.Sequential(nn.Linear(LENGTH, 32), nn.Tanh(), nn.Linear(32, 2))
opt = torch.optim.Adam(policy.parameters(), lr=1e-2)
env = Chain()
for episode in range(120):
    state, done, log_probs, rewards = env.reset(), False, [], []
    while not done:
        dist = torch.distributions.Categorical(logits=policy(state))
        action = dist.sample()
        log_probs.append(dist.log_prob(action))
        state, reward, done = env.step(action.item())
        rewards.append(reward)
    returns, total = [], 0.0
    for r in reversed(rewards):
        total = r + 0.95 * total
        returns.insert(0, total)
    returns = torch.tensor(returns)
    loss = -(torch.stack(log_probs) * returns).sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if episode % 30 == 29:
        print(f"episode {episode} return {sum(rewards):.2f} length {len(rewards)}")
