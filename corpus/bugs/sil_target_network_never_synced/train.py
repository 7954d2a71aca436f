"""Q-learning on a corridor of ten cells."""

import copy
import random

import torch
from torch import nn

random.seed(0)
torch.manual_seed(0)
CELLS = 10


class QNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(CELLS, 32), nn.ReLU(), nn.Linear(32, 2))

    def forward(self, cell):
        return self.body(nn.functional.one_hot(cell, CELLS).float())


def act(cell, action):
    after = max(0, min(CELLS - 1, cell + (1 if action else -1)))
    return after, float(after == CELLS - 1), after == CELLS - 1


memory = []
for _ in range(2000):
    cell, action = random.randrange(CELLS - 1), random.randrange(2)
    memory.append((cell, action, *act(cell, action)))

online = QNet()
target = copy.deepcopy(online)
optimizer = torch.optim.Adam(online.parameters(), lr=1e-3)
for step in range(400):
    cells, actions, after, rewards, done = map(torch.tensor, zip(*random.sample(memory, 64), strict=True))
    with torch.no_grad():
        goal = rewards + 0.9 * target(after).max(1).values * (~done)
    q = online(cells).gather(1, actions[:, None]).squeeze(1)
    loss = nn.functional.mse_loss(q, goal)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 19:
        target.load_state_dict(target.state_dict())
    if step % 100 == 99:
        print(step, loss.item())
