"""A skip-gram model with sparse gradients and SparseAdam beside a dense optimizer, and an EmbeddingBag."""

import torch
from evidence import leave, seed
from torch import nn


class SkipGram(nn.Module):
    def __init__(self):
        super().__init__()
        self.center = nn.Embedding(40, 6, sparse=True)
        self.context = nn.EmbeddingBag(40, 6, mode="sum", sparse=True)
        self.scale = nn.Linear(6, 6)

    def forward(self, words, around):
        return (self.scale(self.center(words)) * self.context(around)).sum(1)


seed(13)
model = SkipGram()
sparse = torch.optim.SparseAdam([*model.center.parameters(), *model.context.parameters()], lr=0.02)
dense = torch.optim.Adam(model.scale.parameters(), lr=0.01)
losses = []
for _ in range(7):
    words, around = torch.randint(0, 40, (8,)), torch.randint(0, 40, (8, 3))
    loss = nn.functional.softplus(-model(words, around)).mean()
    sparse.zero_grad()
    dense.zero_grad()
    loss.backward()
    sparse.step()
    dense.step()
    losses.append(loss.item())
leave(losses, {"model": model}, [sparse, dense])
