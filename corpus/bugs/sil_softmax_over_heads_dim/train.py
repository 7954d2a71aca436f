import math

import torch
import torch.nn as nn

torch.manual_seed(0)


class SelfAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, dim * 3)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / math.sqrt(d // self.heads)
        weights = scores.softmax(dim=-2)
        return self.proj((weights @ v).transpose(1, 2).reshape(b, t, d))


class Tagger(nn.Module):
    def __init__(self, vocab=20, dim=32):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.attn = SelfAttention(dim, 4)
        self.norm = nn.LayerNorm(dim)
        self.out = nn.Linear(dim, vocab)

    def forward(self, ids):
        h = self.embed(ids)
        return self.out(self.norm(h + self.attn(h)))


ids = torch.randint(0, 20, (512, 12))
target = ids.roll(1, dims=1)
model = Tagger()
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(120):
    pick = torch.randint(0, 512, (32,))
    loss = nn.functional.cross_entropy(model(ids[pick]).flatten(0, 1), target[pick].flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 30 == 29:
        print(f"step {step} loss {loss.item():.4f}")
