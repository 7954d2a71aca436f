import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
NAMES = ["cat", "dog", "fox"]


class Animals(Dataset):
    def __init__(self):
        self.x = torch.randn(120, 6)

    def __len__(self):
        return 120

    def __getitem__(self, i):
        return self.x[i], NAMES[i % 3]


loader = DataLoader(Animals(), batch_size=20, shuffle=True)
model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3))
opt = torch.optim.Adam(model.parameters(), lr=1e-2)
for xb, yb in loader:
    loss = nn.functional.cross_entropy(model(xb), yb)
    opt.zero_grad()
    loss.backward()
    opt.step()
print("done", loss.item())
