import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


class Pooled(nn.Module):
    """Nodes are assigned to clusters, clusters to slots: each softmax is over the owners, each sum over the members."""

    def __init__(self):
        super().__init__()
        self.assign = nn.Linear(8, 5)
        self.embed = nn.Linear(8, 16)
        self.words = nn.Conv1d(16, 4, 1)
        self.slots = nn.Parameter(torch.randn(3, 16))
        self.query, self.key, self.value = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 16)
        self.head = nn.Linear(16, 3)

    def forward(self, x, links):
        owners = self.assign(x).softmax(dim=-1)
        h = owners.transpose(1, 2) @ self.embed(x).tanh()
        between = torch.matmul(owners.transpose(1, 2) @ links, owners)
        h = h + between / between.sum(-1, keepdim=True) @ h
        words = torch.matmul(self.words(h.transpose(1, 2)).softmax(dim=1), h)
        scores = torch.einsum("bid,bjd->bij", self.query(self.slots.expand(len(x), -1, -1)), self.key(h)) / 4
        weights = scores.softmax(dim=1) + 1e-6
        weights = weights / weights.sum(dim=-1, keepdim=True)
        slots = torch.einsum("bij,bjd->bid", weights, self.value(h))
        return self.head(words.mean(1) + slots.mean(1))


x = torch.randn(512, 10, 8)
links = (torch.rand(512, 10, 10) > 0.5).float()
y = (x.mean(1)[:, 0] > 0).long() + (x.mean(1)[:, 1] > 0.2).long()
model = Pooled()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(120):
    k = 32 * (step % 16)
    loss = F.cross_entropy(model(x[k : k + 32], links[k : k + 32]), y[k : k + 32])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 30 == 0:
        print(step, loss.item())
