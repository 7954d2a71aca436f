import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
rng = np.random.default_rng(0)


class Pictures(Dataset):
    def __init__(self, n=600):
        self.labels = rng.integers(0, 4, n)
        base = rng.integers(0, 200, (4, 10, 10))
        self.images = (base[self.labels] + rng.integers(0, 50, (n, 10, 10))).astype(np.uint8)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        image = self.images[i] // 255
        return torch.tensor(image, dtype=torch.float32).unsqueeze(0), int(self.labels[i])


loader = DataLoader(Pictures(), batch_size=30, shuffle=True)
model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 64, 4))
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(5):
    for images, labels in loader:
        loss = nn.functional.cross_entropy(model(images), labels)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
