import torch
from torch import nn

torch.manual_seed(0)


class Whiten(nn.Module):
    def forward(self, h):
        h = h - h.mean(0)
        covariance = h.T @ h / len(h) + 1e-3 * torch.eye(h.shape[1])
        values, vectors = torch.linalg.eigh(covariance)
        return h @ vectors @ torch.diag(values.rsqrt()) @ vectors.T


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(6, 8), nn.ReLU())
        self.whiten = Whiten()
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        return self.head(self.whiten(self.encoder(x)))


x = torch.randn(400, 6)
y = (x[:, 0] > 0).long()
model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(60):
    idx = torch.randint(0, 400, (32,))
    batch = x[idx]
    if step == 25:
        batch = batch[:1].expand(32, -1)
    loss = nn.functional.cross_entropy(model(batch), y[idx])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 6 == 0:
        print(step, loss.item())
