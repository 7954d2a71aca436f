"""A small transformer on padded sequences. One sample in the data is empty: attention has nothing to look at, and the loss becomes NaN.

tensonde run --ui examples/tiny_gpt.py
"""

import math
import sys

import torch
from torch import nn
from torch.nn import functional as F

WIDTH, HEADS, LAYERS, LENGTH, WORDS = 48, 4, 4, 24, 64


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.proj = nn.Linear(WIDTH, WIDTH)

    def forward(self, x, padding):
        batch, length, _ = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / math.sqrt(WIDTH // HEADS)
        scores = scores.masked_fill(padding[:, None, None, :], float("-inf"))
        return self.proj((scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, WIDTH))


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH)
        self.attn = Attention()
        self.norm2 = nn.LayerNorm(WIDTH)
        self.mlp = Mlp()

    def forward(self, x, padding):
        x = x + self.attn(self.norm1(x), padding)
        return x + self.mlp(self.norm2(x))


class TinyGPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.places = nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, tokens, padding):
        x = self.words(tokens) + self.places(torch.arange(LENGTH))
        for block in self.blocks:
            x = block(x, padding)
        return self.head(self.norm(x))


def main(steps=120):
    torch.manual_seed(0)
    tokens = torch.randint(0, WORDS, (1024, LENGTH))
    tokens[:, 1::2] = tokens[:, ::2]  # something to learn: every word comes twice
    lengths = torch.randint(8, LENGTH + 1, (1024,))
    lengths[767] = 0  # the bug
    model = TinyGPT()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    warmup = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, (step + 1) / 20))
    for step in range(steps):
        rows = torch.arange(8 * step, 8 * step + 8) % 1024
        batch, padding = tokens[rows], torch.arange(LENGTH) >= lengths[rows, None]
        losses = F.cross_entropy(model(batch, padding)[:, :-1].flatten(0, 1), batch[:, 1:].flatten(), reduction="none")
        real = ~padding[:, 1:].flatten()
        loss = (losses * real).sum() / real.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        warmup.step()
        if step % 10 == 9:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
