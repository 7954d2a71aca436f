import torch
import torch.nn as nn

torch.manual_seed(0)
policy = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 3))
opt = torch.optim.Adam(policy.parameters(), lr=5e-3)
baseline = 0.0
avg = 0.0
for step in range(500):
    pos = torch.rand(32, 2) * 2 - 1
    goal = torch.zeros(32, 2)
    logps, rewards = [], []
    for t in range(6):
        dist = torch.distributions.Categorical(logits=policy(torch.cat([pos, goal - pos], 1)))
        a = dist.sample()
        move = torch.stack([(a == 0).float() - (a == 1).float(), torch.zeros(32)], 1) * 0.25
        pos = pos + move
        logps.append(dist.log_prob(a))
        rewards.append(-pos[:, 0].abs())
    rewards = torch.stack(rewards)
    ret = rewards.flip(0).cumsum(0).flip(0)
    adv = ret - ret.mean(1, keepdim=True)
    loss = -(torch.stack(logps) * adv).mean()
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
    opt.step()
    avg = 0.95 * avg + 0.05 * ret[0].mean().item()
    if step % 100 == 99:
        print(f"step {step} loss {loss.item():+.4f} return {avg:.3f}")
