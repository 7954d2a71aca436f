"""Deep Q-learning on a small corridor, with a replay buffer and a target network, in the manner of cleanrl."""

import random

import numpy as np
import torch
from fingerprint import report
from torch import nn

random.seed(1)
np.random.seed(1)
torch.manual_seed(1)
LENGTH = 8


def observe(place):
    return np.eye(LENGTH, dtype=np.float32)[place]


class QNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.network = nn.Sequential(nn.Linear(LENGTH, 32), nn.ReLU(), nn.Linear(32, 2))

    def forward(self, x):
        return self.network(x)


q, target = QNetwork(), QNetwork()
target.load_state_dict(q.state_dict())
optimizer = torch.optim.Adam(q.parameters(), lr=1e-3)
memory, place, steps, returns = [], 0, 0, []
for step in range(3000):
    epsilon = max(0.05, 1 - step / 1500)
    if random.random() < epsilon:
        action = random.randrange(2)
    else:
        action = int(q(torch.from_numpy(observe(place))).argmax())
    new = min(LENGTH - 1, place + 1) if action else max(0, place - 1)
    done = new == LENGTH - 1
    memory.append((observe(place), action, float(done), observe(new), float(done)))
    steps += 1
    place = 0 if done or steps >= 40 else new
    if place == 0 and (done or steps >= 40):
        returns.append(steps)
        steps = 0
    if step > 200 and step % 4 == 0:
        batch = [memory[i] for i in np.random.randint(0, len(memory), 32)]
        s, a, r, n, d = (torch.as_tensor(np.array(column)) for column in zip(*batch))
        with torch.no_grad():
            goal = r.float() + 0.95 * target(n).max(1).values * (1 - d.float())
        value = q(s).gather(1, a.long().unsqueeze(1)).squeeze(1)
        loss = nn.functional.mse_loss(value, goal)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if step % 200 == 0:
        for mine, theirs in zip(target.parameters(), q.parameters()):
            mine.data.copy_(0.5 * theirs.data + 0.5 * mine.data)
print(len(returns), np.mean(returns[-10:]), f"{loss.item():.6f}")
report(q, target, optimizer)
