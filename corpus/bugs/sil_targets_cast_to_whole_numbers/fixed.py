import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)


class Ratings(Dataset):
    def __init__(self, n=500):
        self.x = torch.randn(n, 6)
        self.score = torch.sigmoid(self.x[:, 0] - self.x[:, 1]).tolist()

    def __len__(self):
        return len(self.score)

    def __getitem__(self, i):
        return self.x[i], torch.tensor(self.score[i]).float()


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, x):
        return self.net(x).squeeze(1)


model = Model()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for epoch in range(5):
    for x, y in DataLoader(Ratings(), batch_size=25, shuffle=True):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
