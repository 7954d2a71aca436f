"""Translation with a transformer: shopping lists in one invented language to another, padding masks, teacher forcing, greedy decoding."""
import math
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

PAD, BOS, EOS = 0, 1, 2
NOUNS, COLOURS, COUNTS = 8, 5, 6
SRC_VOCAB = 3 + NOUNS + COLOURS + COUNTS
TGT_VOCAB = 3 + NOUNS + COLOURS + COUNTS


def make_pair(rng):
    """Source: count colour noun, for each item; target: noun colour count."""
    source, target = [], []
    for _ in range(rng.randint(1, 3)):
        noun, colour, count = rng.randrange(NOUNS), rng.randrange(COLOURS), rng.randrange(COUNTS)
        source += [3 + NOUNS + COLOURS + count, 3 + NOUNS + colour, 3 + noun]
        target += [3 + (noun * 3 + 1) % NOUNS, 3 + NOUNS + (colour + 2) % COLOURS, 3 + NOUNS + COLOURS + (count + 1) % COUNTS]
    return source + [EOS], [BOS] + target + [EOS]


def pad(rows):
    width = max(len(row) for row in rows)
    return torch.tensor([row + [PAD] * (width - len(row)) for row in rows])


def batches(pairs, size, rng):
    order = list(range(len(pairs)))
    rng.shuffle(order)
    for first in range(0, len(order), size):
        chosen = [pairs[k] for k in order[first:first + size]]
        yield pad([source for source, _ in chosen]), pad([target for _, target in chosen])


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.size = heads, dim // heads
        self.q, self.k, self.v, self.out = (nn.Linear(dim, dim) for _ in range(4))

    def split(self, x):
        return x.view(x.size(0), x.size(1), self.heads, self.size).transpose(1, 2)

    def forward(self, x, memory, mask):
        q, k, v = self.split(self.q(x)), self.split(self.k(memory)), self.split(self.v(memory))
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.size)
        scores = scores.masked_fill(~mask, -1e9)
        mixed = scores.softmax(dim=-1) @ v
        return self.out(mixed.transpose(1, 2).reshape(x.shape))


class EncoderLayer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.attention = Attention(dim, heads)
        self.ff = nn.Sequential(nn.Linear(dim, 2 * dim), nn.ReLU(), nn.Linear(2 * dim, dim))
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)

    def forward(self, x, mask):
        h = self.norm1(x)
        x = x + self.attention(h, h, mask)
        return x + self.ff(self.norm2(x))


class DecoderLayer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.own = Attention(dim, heads)
        self.cross = Attention(dim, heads)
        self.ff = nn.Sequential(nn.Linear(dim, 2 * dim), nn.ReLU(), nn.Linear(2 * dim, dim))
        self.norm1, self.norm2, self.norm3 = nn.LayerNorm(dim), nn.LayerNorm(dim), nn.LayerNorm(dim)

    def forward(self, x, memory, causal, memory_mask):
        h = self.norm1(x)
        x = x + self.own(h, h, causal)
        x = x + self.cross(self.norm2(x), memory, memory_mask)
        return x + self.ff(self.norm3(x))


class Translator(nn.Module):
    def __init__(self, dim=48, heads=4, longest=16):
        super().__init__()
        self.src = nn.Embedding(SRC_VOCAB, dim, padding_idx=PAD)
        self.tgt = nn.Embedding(TGT_VOCAB, dim, padding_idx=PAD)
        self.pos = nn.Embedding(longest, dim)
        self.encoder = EncoderLayer(dim, heads)
        self.decoder = DecoderLayer(dim, heads)
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, TGT_VOCAB)

    def encode(self, source):
        mask = (source != PAD)[:, None, None, :]
        x = self.src(source) + self.pos(torch.arange(source.size(1)))
        return self.encoder(x, mask), mask

    def decode(self, prefix, memory, memory_mask):
        length = prefix.size(1)
        causal = torch.tril(torch.ones(length, length, dtype=torch.bool))[None, None]
        x = self.tgt(prefix) + self.pos(torch.arange(length))
        return self.head(self.norm(self.decoder(x, memory, causal, memory_mask)))

    def forward(self, source, prefix):
        memory, mask = self.encode(source)
        return self.decode(prefix, memory, mask)


@torch.no_grad()
def exact(model, pairs):
    model.eval()
    source, target = pad([s for s, _ in pairs]), pad([t for _, t in pairs])
    memory, mask = model.encode(source)
    written = torch.full((len(pairs), 1), BOS)
    for _ in range(target.size(1) - 1):
        following = model.decode(written, memory, mask)[:, -1].argmax(dim=-1, keepdim=True)
        written = torch.cat([written, following], dim=1)
    right = ((written == target) | (target == PAD)).all(dim=1)
    return right.float().mean().item()


def main(epochs=9, size=64, lr=3e-3, smoothing=0.02):
    rng = random.Random(3)
    torch.manual_seed(3)
    pairs = [make_pair(rng) for _ in range(2200)]
    train, held_out = pairs[:2000], pairs[2000:]
    model = Translator()
    optimizer = torch.optim.Adam(model.parameters(), lr=lr, betas=(0.9, 0.98))
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=lr, total_steps=epochs * math.ceil(len(train) / size))
    for epoch in range(epochs):
        model.train()
        total, count = 0.0, 0
        for source, target in batches(train, size, rng):
            logits = model(source, target[:, :-1])
            wanted = target[:, 1:]
            loss = F.cross_entropy(logits.reshape(-1, TGT_VOCAB), wanted.reshape(-1), ignore_index=PAD, label_smoothing=smoothing)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            total, count = total + loss.item(), count + 1
        print(f"epoch {epoch} loss {total / count:.4f} exact {exact(model, held_out):.4f}")
    return exact(model, held_out)


if __name__ == "__main__":
    print(f"final exact: {main():.4f}")
