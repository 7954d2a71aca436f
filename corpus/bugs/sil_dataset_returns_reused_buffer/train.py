# pattern source: pytorch forum class "all samples in the list are the same tensor", pytorch/pytorch from_numpy shares memory (own)
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)


class Frames(Dataset):
    def __init__(self, n, seed):
        self.rng = np.random.default_rng(seed)
        self.buffer = np.zeros((1, 12, 12), dtype=np.float32)
        self.labels = self.rng.integers(0, 3, n)
        self.cache = [self.decode(int(k)) for k in self.labels]

    def decode(self, kind):
        self.buffer[:] = 0.4 * self.rng.standard_normal((1, 12, 12))
        if kind == 0:
            self.buffer[0, :4] += 1
        elif kind == 1:
            self.buffer[0, 4:8] += 1
        else:
            self.buffer[0, 8:] += 1
        return torch.from_numpy(self.buffer)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.cache[i], int(self.labels[i])


loader = DataLoader(Frames(600, 0), batch_size=30, shuffle=True)
model = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(288, 3))
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
for epoch in range(6):
    total, hits = 0.0, 0
    for x, y in loader:
        out = model(x)
        loss = nn.functional.cross_entropy(out, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item() / len(loader)
        hits += (out.argmax(1) == y).sum().item()
    print(f"epoch {epoch} loss {total:.4f} train acc {hits / 600:.3f}")
