import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


class Attention(nn.Module):
    def __init__(self, size=16, heads=2):
        super().__init__()
        self.qkv, self.out = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.drop, self.heads = nn.Dropout(0.1), heads

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (part.view(b, t, self.heads, c // self.heads).transpose(1, 2) for part in self.qkv(x).split(c, dim=2))
        scores = q @ k.transpose(-2, -1) / (c // self.heads) ** 0.5
        scores = scores.masked_fill(torch.ones(t, t).triu(1).bool(), float("-inf"))
        weights = scores.softmax(dim=-2)
        return self.out((self.drop(weights) @ v).transpose(1, 2).reshape(b, t, c))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(24, 16), nn.Embedding(12, 16)
        self.attention, self.norm, self.head = Attention(), nn.LayerNorm(16), nn.Linear(16, 24)

    def forward(self, given, targets):
        x = self.tokens(given) + self.places(torch.arange(given.shape[1]))
        x = x + self.attention(self.norm(x))
        logits = self.head(x)
        return logits, F.cross_entropy(logits.view(-1, 24), targets.reshape(-1))


text = (torch.arange(4000) * 7 + torch.randint(0, 3, (4000,))) % 24


def batch():
    starts = torch.randint(0, 3900, (16,))
    given = torch.stack([text[k : k + 12] for k in starts])
    targets = torch.stack([text[k + 1 : k + 13] for k in starts])
    return given, targets


model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(80):
    given, targets = batch()
    _, loss = model(given, targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
