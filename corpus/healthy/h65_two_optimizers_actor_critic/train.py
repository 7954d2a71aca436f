import torch
import torch.nn as nn

torch.manual_seed(0)
actor = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 3))
critic = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1))
opt_actor = torch.optim.Adam(actor.parameters(), lr=5e-3)
opt_critic = torch.optim.Adam(critic.parameters(), lr=1e-2)
best = torch.randn(4, 3)
for step in range(150):
    state = torch.randn(64, 4)
    dist = torch.distributions.Categorical(logits=actor(state))
    action = dist.sample()
    reward = ((state @ best).argmax(1) == action).float()
    value = critic(state).squeeze(1)
    advantage = (reward - value).detach()
    critic_loss = nn.functional.smooth_l1_loss(value, reward)
    opt_critic.zero_grad()
    critic_loss.backward()
    opt_critic.step()
    actor_loss = -(dist.log_prob(action) * advantage).mean() - 0.01 * dist.entropy().mean()
    opt_actor.zero_grad()
    actor_loss.backward()
    opt_actor.step()
    if step % 30 == 29:
        print(f"step {step} reward {reward.mean().item():.3f}")
