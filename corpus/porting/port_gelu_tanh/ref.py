import numpy as np
import torch
from torch import nn


def reviews():
    rng = np.random.default_rng(5)
    labels = rng.integers(0, 2, 200)
    words = rng.integers(0, 40, (200, 9))
    words[labels == 1, 4] = 41
    return words, labels


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.up = nn.Linear(width, 2 * width)
        self.act = nn.GELU()
        self.down = nn.Linear(2 * width, width)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        weights = torch.softmax(q @ k.transpose(1, 2) / q.shape[-1] ** 0.5, -1)
        x = x + self.proj(weights @ v)
        return x + self.down(self.act(self.up(x)))


class Sentiment(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(48, 16)
        self.blocks = nn.ModuleList(Block(16) for _ in range(2))
        self.head = nn.Linear(16, 2)

    def forward(self, words):
        x = 0.3 * self.embed(words)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(1))


torch.manual_seed(0)
model = Sentiment()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
model.train()
loss_fn = nn.CrossEntropyLoss()
words, labels = reviews()
for epoch in range(3):
    order = np.random.permutation(len(words))
    for begin in range(0, len(words), 40):
        chosen = order[begin : begin + 40]
        optimizer.zero_grad()
        loss = loss_fn(model(torch.from_numpy(words[chosen])), torch.from_numpy(labels[chosen]))
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
