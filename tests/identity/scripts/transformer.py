"""A small GPT with a causal and a padding mask, tied embeddings, nn.MultiheadAttention beside hand-written attention, two groups."""

import math

import torch
from evidence import leave, seed
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.drop = nn.Dropout(0.1)
        self.register_buffer("mask", torch.tril(torch.ones(16, 16)).bool(), persistent=False)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (part.view(b, t, self.heads, -1).transpose(1, 2) for part in self.qkv(x).split(c, 2))
        scores = (q @ k.transpose(-2, -1)) / math.sqrt(c // self.heads)
        scores = scores.masked_fill(~self.mask[:t, :t], float("-inf"))
        return self.proj((self.drop(scores.softmax(-1)) @ v).transpose(1, 2).reshape(b, t, c))


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = Attention(width, 2)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1))

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    def __init__(self, width=16, vocabulary=24):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocabulary, width), nn.Embedding(16, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(2))
        self.mha = nn.MultiheadAttention(width, 2, dropout=0.1, batch_first=True)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tok.weight

    def forward(self, tokens, padding):
        x = self.tok(tokens) + self.pos(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        x = x + self.mha(x, x, x, key_padding_mask=padding, need_weights=True)[0]
        return {"logits": self.head(self.norm(x))}


seed(3)
model = GPT()
decay = [p for p in model.parameters() if p.ndim > 1]
rest = [p for p in model.parameters() if p.ndim <= 1]
optimizer = torch.optim.AdamW(
    [{"params": decay, "weight_decay": 0.1}, {"params": rest, "lr": 3e-3}], lr=1e-3, fused=True
)
losses = []
for _ in range(7):
    tokens = torch.randint(0, 24, (4, 13))
    padding = torch.zeros(4, 12, dtype=torch.bool)
    padding[1, 9:] = True
    logits = model(tokens[:, :-1], padding)["logits"]
    loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
leave(losses, {"model": model}, [optimizer])
