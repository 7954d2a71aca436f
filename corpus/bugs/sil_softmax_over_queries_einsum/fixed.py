import math

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


class Attention(nn.Module):
    def __init__(self, width=32, heads=4):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        size, length, width = x.shape
        q, k, v = (t.view(size, length, self.heads, -1) for t in self.qkv(x).split(width, dim=2))
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(width // self.heads)
        weights = scores.softmax(dim=3)
        mixed = torch.einsum("bhqk,bkhd->bqhd", self.drop(weights), v)
        return self.out(mixed.reshape(size, length, width))


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(40, 32)
        self.places = nn.Embedding(12, 32)
        self.norm = nn.LayerNorm(32)
        self.attention = Attention()
        self.head = nn.Linear(32, 2)

    def forward(self, x):
        h = self.words(x) + self.places(torch.arange(x.shape[1]))
        return self.head(h + self.attention(self.norm(h)))


words = torch.randint(0, 40, (512, 12))
tags = (words > words.float().mean(1, keepdim=True)).long()
model = Tagger()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(60):
    k = 32 * (step % 16)
    loss = F.cross_entropy(model(words[k : k + 32]).reshape(-1, 2), tags[k : k + 32].reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(step, loss.item())
