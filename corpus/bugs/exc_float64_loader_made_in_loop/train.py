import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)


class Sensors(Dataset):
    def __init__(self, n=200):
        rng = np.random.default_rng(0)
        self.x = rng.normal(size=(n, 7))
        self.y = self.x.sum(1, keepdims=True).astype("float32")

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return torch.from_numpy(self.x[i]), torch.from_numpy(self.y[i])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(7, 16), nn.ReLU())
        self.out = nn.Linear(16, 1)

    def forward(self, x):
        return self.out(self.encoder(x))


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
for epoch in range(3):
    for x, y in DataLoader(Sensors(), batch_size=20):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
