import numpy as np
import torch
import torch.nn as nn

torch.manual_seed(0)
rng = np.random.RandomState(0)


class Replay:
    def __init__(self, size=1000):
        self.state = rng.randn(size, 4).astype(np.float32)
        self.action = np.zeros(size, dtype=np.float32)
        self.action[:] = rng.randint(0, 3, size)
        self.reward = (self.state[:, 0] > 0).astype(np.float32)

    def sample(self, n):
        i = rng.randint(0, len(self.state), n)
        return torch.from_numpy(self.state[i]), torch.from_numpy(self.action[i]), torch.from_numpy(self.reward[i])


replay = Replay()
q = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 3))
opt = torch.optim.Adam(q.parameters(), lr=1e-3)
for step in range(60):
    s, a, r = replay.sample(32)
    chosen = q(s).gather(1, a.unsqueeze(1)).squeeze(1)
    loss = nn.functional.mse_loss(chosen, r)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 20 == 19:
        print(f"step {step} loss {loss.item():.4f}")
