"""Causal transformer language model on counting sequences such as 3+2=5791;: learned positions, warm-up and cosine, accuracy on the answers."""
import math
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

CHARS = "_0123456789+=;"
STOI = {c: i for i, c in enumerate(CHARS)}
PAD = STOI["_"]
BLOCK, DIM, HEADS, LAYERS, BATCH, STEPS, LR = 10, 48, 4, 2, 64, 240, 3e-3

random.seed(7)
torch.manual_seed(7)


def sample_line():
    first, step = random.randint(0, 9), random.randint(1, 4)
    return f"{first}+{step}=" + "".join(str((first + k * step) % 10) for k in range(1, 5)) + ";"


def encode(lines):
    rows = torch.full((len(lines), BLOCK), PAD, dtype=torch.long)
    for r, line in enumerate(lines):
        ids = [STOI[c] for c in line]
        rows[r, : len(ids)] = torch.tensor(ids)
    return rows


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(DIM, 3 * DIM)
        self.proj = nn.Linear(DIM, DIM)
        self.register_buffer("mask", torch.tril(torch.ones(BLOCK, BLOCK)).bool())

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(x).split(DIM, dim=2)
        q, k, v = (m.view(b, t, HEADS, DIM // HEADS).transpose(1, 2) for m in (q, k, v))
        scores = q @ k.transpose(-2, -1) / math.sqrt(DIM // HEADS)
        scores = scores.masked_fill(~self.mask[:t, :t], float("-inf"))
        out = F.softmax(scores, dim=-1) @ v
        return self.proj(out.transpose(1, 2).reshape(b, t, DIM))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.attn = Attention()
        self.mlp = nn.Sequential(nn.Linear(DIM, 4 * DIM), nn.GELU(), nn.Linear(4 * DIM, DIM))

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(len(CHARS), DIM)
        self.pos = nn.Embedding(BLOCK, DIM)
        self.blocks = nn.ModuleList([Block() for _ in range(LAYERS)])
        self.ln = nn.LayerNorm(DIM)
        self.head = nn.Linear(DIM, len(CHARS), bias=False)

    def forward(self, ids):
        x = self.tok(ids) + self.pos(torch.arange(ids.size(1)))
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln(x))


def next_token_loss(logits, targets):
    return F.cross_entropy(logits.reshape(-1, logits.size(-1)), targets.reshape(-1), ignore_index=PAD)


def lr_at(step):
    warm = 30
    if step < warm:
        return (step + 1) / warm
    return 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * (step - warm) / (STEPS - warm)))


@torch.no_grad()
def exact_match(model, lines):
    model.eval()
    right = 0
    for line in lines:
        prompt, answer = line.split("=")
        ids = [STOI[c] for c in prompt + "="]
        for _ in range(len(answer)):
            logits = model(torch.tensor(ids)[None])
            ids.append(int(logits[0, -1].argmax()))
        right += "".join(CHARS[i] for i in ids) == line
    model.train()
    return right / len(lines)


train = encode([sample_line() for _ in range(2048)])
held = [sample_line() for _ in range(24)]
model = LM()
opt = torch.optim.AdamW(model.parameters(), lr=LR, betas=(0.9, 0.98), weight_decay=0.01)
sched = torch.optim.lr_scheduler.LambdaLR(opt, lr_at)

for step in range(STEPS):
    rows = train[torch.randint(0, len(train), (BATCH,))]
    inputs, targets = rows[:, :-1], rows[:, 1:]
    logits = model(inputs)
    loss = next_token_loss(logits, targets)
    opt.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    sched.step()
    if step % 80 == 79:
        print(f"step {step} loss {loss.item():.4f} match {exact_match(model, held):.3f}")

print(f"final match: {exact_match(model, held):.4f}")
