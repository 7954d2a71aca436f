"""PPO as widely used scripts write it: -advantage * ratio, value clipping, entropy."""

import torch, torch.nn as nn
from torch.distributions import Categorical

torch.manual_seed(1)


class Envs:
    """Walk along a line to a goal that is observed."""

    def __init__(self, n):
        self.n = n
        self.pos, self.goal, self.t = torch.zeros(n), torch.zeros(n), torch.zeros(n)
        self.reset(torch.ones(n, dtype=torch.bool))

    def reset(self, which):
        k = int(which.sum())
        self.pos[which] = torch.rand(k) * 2 - 1
        self.goal[which] = torch.rand(k) * 2 - 1
        self.t[which] = 0

    def obs(self):
        return torch.stack([self.pos, self.goal, self.goal - self.pos, self.t / 20], 1)

    def step(self, action):
        self.pos = (self.pos + (action.float() - 1) * 0.1).clamp(-1.5, 1.5)
        self.t = self.t + 1
        gap = (self.pos - self.goal).abs()
        reward = -gap + (gap < 0.1).float()
        done = self.t >= 20
        if done.any():
            self.reset(done)
        return self.obs(), reward, done.float()


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.critic = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 1))
        self.actor = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 3))

    def get_value(self, x):
        return self.critic(x)

    def get_action_and_value(self, x, action=None):
        probs = Categorical(logits=self.actor(x))
        if action is None:
            action = probs.sample()
        return action, probs.log_prob(action), probs.entropy(), self.critic(x)


num_envs, num_steps, gamma, lam, clip = 16, 32, 0.95, 0.95, 0.2
envs, agent = Envs(num_envs), Agent()
optimizer = torch.optim.Adam(agent.parameters(), lr=2.5e-3, eps=1e-5)
next_obs, next_done = envs.obs(), torch.zeros(num_envs)
for update in range(20):
    obs = torch.zeros(num_steps, num_envs, 4)
    actions, logprobs, rewards, dones, values = (torch.zeros(num_steps, num_envs) for _ in range(5))
    for t in range(num_steps):
        obs[t], dones[t] = next_obs, next_done
        with torch.no_grad():
            action, logprob, _, value = agent.get_action_and_value(next_obs)
        values[t], actions[t], logprobs[t] = value.flatten(), action, logprob
        next_obs, rewards[t], next_done = envs.step(action)
    with torch.no_grad():
        next_value = agent.get_value(next_obs).reshape(1, -1)
        advantages, last = torch.zeros_like(rewards), 0
        for t in reversed(range(num_steps)):
            nonterminal = 1.0 - (next_done if t == num_steps - 1 else dones[t + 1])
            nextvalues = next_value if t == num_steps - 1 else values[t + 1]
            delta = rewards[t] + gamma * nextvalues * nonterminal - values[t]
            advantages[t] = last = delta + gamma * lam * nonterminal * last
        returns = advantages + values
    b_obs, b_logprobs, b_actions = obs.reshape(-1, 4), logprobs.reshape(-1), actions.reshape(-1)
    b_advantages, b_returns, b_values = advantages.reshape(-1), returns.reshape(-1), values.reshape(-1)
    for epoch in range(4):
        for mb_inds in torch.randperm(num_envs * num_steps).split(128):
            _, newlogprob, entropy, newvalue = agent.get_action_and_value(b_obs[mb_inds], b_actions.long()[mb_inds])
            logratio = newlogprob - b_logprobs[mb_inds]
            ratio = logratio.exp()
            mb_advantages = b_advantages[mb_inds]
            mb_advantages = (mb_advantages - mb_advantages.mean()) / (mb_advantages.std() + 1e-8)
            pg_loss1 = -mb_advantages * ratio
            pg_loss2 = -mb_advantages * torch.clamp(ratio, 1 - clip, 1 + clip)
            pg_loss = torch.max(pg_loss1, pg_loss2).mean()
            newvalue = newvalue.view(-1)
            v_loss_unclipped = (newvalue - b_returns[mb_inds]) ** 2
            v_clipped = b_values[mb_inds] + torch.clamp(newvalue - b_values[mb_inds], -clip, clip)
            v_loss = 0.5 * torch.max(v_loss_unclipped, (v_clipped - b_returns[mb_inds]) ** 2).mean()
            loss = pg_loss - 0.01 * entropy.mean() + v_loss * 0.5
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()
print("final reward:", float(rewards.mean()))
