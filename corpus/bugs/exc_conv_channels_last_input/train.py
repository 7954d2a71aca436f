import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)


class Photos(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, i):
        image = np.random.default_rng(i).random((16, 16, 3)).astype("float32")
        return torch.from_numpy(image), i % 4


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        x = torch.relu(self.stem(x))
        return self.head(x.mean((2, 3)))


loader = DataLoader(Photos(), batch_size=16, shuffle=True)
net = Net()
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for epoch in range(2):
    for xb, yb in loader:
        loss = nn.functional.cross_entropy(net(xb), yb)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
