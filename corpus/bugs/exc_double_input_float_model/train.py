import numpy as np
import torch
import torch.nn as nn

torch.manual_seed(0)
rng = np.random.default_rng(0)


class Table:
    def __init__(self, n=300):
        self.features = rng.normal(size=(n, 5))
        self.target = (self.features[:, :1] > 0).astype("float32")

    def batch(self, size):
        rows = rng.integers(0, len(self.features), size)
        x = torch.from_numpy(self.features[rows])
        return x, torch.from_numpy(self.target[rows])


table = Table()
model = nn.Sequential(nn.Linear(5, 10), nn.ReLU(), nn.Linear(10, 1))
opt = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(30):
    x, y = table.batch(32)
    loss = nn.functional.binary_cross_entropy_with_logits(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
print("done", loss.item())
