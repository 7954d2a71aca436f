"""A word-level transformer language model on text of a small grammar: blocks cut from one stream, tied weights, accumulation, warm-up, perplexity."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

SUBJECTS = ["cat", "dog", "bird", "child", "farmer", "teacher"]
PLURALS = ["cats", "dogs", "birds", "children", "farmers", "teachers"]
VERBS = ["sees", "likes", "follows", "hears"]
PLURAL_VERBS = ["see", "like", "follow", "hear"]
ADVERBS = ["often", "rarely", "today", "again"]


def sentence():
    def pick(words):
        return words[torch.randint(len(words), (1,)).item()]

    plural = torch.rand(1).item() < 0.5
    k = torch.randint(len(SUBJECTS), (1,)).item()
    words = ["the", (PLURALS if plural else SUBJECTS)[k]]
    if torch.rand(1).item() < 0.5:
        words += ["near", "the", pick(SUBJECTS + PLURALS)]
    words += [pick(PLURAL_VERBS if plural else VERBS), "the", pick(SUBJECTS + PLURALS)]
    return words + [ADVERBS[k % 4], "."]


class Blocks(Dataset):
    """Windows of the stream, and the same windows one word further on."""

    def __init__(self, stream, size):
        self.stream = stream
        self.size = size

    def __len__(self):
        return (len(self.stream) - 1) // self.size

    def __getitem__(self, index):
        start = index * self.size
        inputs = self.stream[start:start + self.size]
        targets = self.stream[start + 1:start + self.size + 1]
        return inputs, targets


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        q = q.view(batch, length, self.heads, -1).transpose(1, 2)
        k = k.view(batch, length, self.heads, -1).transpose(1, 2)
        v = v.view(batch, length, self.heads, -1).transpose(1, 2)
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
        mask = torch.triu(torch.ones(length, length, dtype=torch.bool), diagonal=1)
        scores = scores.masked_fill(mask, float("-inf"))
        out = F.softmax(scores, dim=-1) @ v
        return self.proj(out.transpose(1, 2).reshape(batch, length, width))


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class LanguageModel(nn.Module):
    def __init__(self, words, size, width=48, heads=4, depth=2):
        super().__init__()
        self.tokens = nn.Embedding(words, width)
        self.positions = nn.Embedding(size, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, words, bias=False)
        self.apply(self._init)
        self.head.weight = self.tokens.weight

    def _init(self, module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.05)

    def forward(self, ids):
        x = self.tokens(ids) + self.positions(torch.arange(ids.size(1)))
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


@torch.no_grad()
def perplexity(model, loader):
    model.eval()
    total, count = 0.0, 0
    for inputs, targets in loader:
        logits = model(inputs)
        total += F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum").item()
        count += targets.numel()
    model.train()
    return math.exp(total / count)


def main():
    torch.manual_seed(8)
    size, accumulate, updates = 24, 2, 150
    words = [word for _ in range(2600) for word in sentence()]
    vocabulary = {word: k for k, word in enumerate(sorted(set(words)))}
    stream = torch.tensor([vocabulary[word] for word in words])
    cut = int(0.9 * len(stream))
    train_loader = DataLoader(Blocks(stream[:cut], size), batch_size=16, shuffle=True, drop_last=True)
    valid_loader = DataLoader(Blocks(stream[cut:], size), batch_size=32)
    model = LanguageModel(len(vocabulary), size)
    decay = [p for p in model.parameters() if p.dim() >= 2]
    plain = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": decay, "weight_decay": 0.05}, {"params": plain, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=4e-3, betas=(0.9, 0.98))
    warmup = 15

    def factor(step):
        if step < warmup:
            return (step + 1) / warmup
        return 0.5 * (1 + math.cos(math.pi * (step - warmup) / (updates - warmup)))

    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    done, micro = 0, 0
    while done < updates:
        for inputs, targets in train_loader:
            logits = model(inputs)
            loss = F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))
            (loss / accumulate).backward()
            micro += 1
            if micro % accumulate == 0:
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
                done += 1
                if done % 50 == 0:
                    print(f"update {done}: loss {loss.item():.3f}, valid perplexity {perplexity(model, valid_loader):.2f}")
                if done == updates:
                    break
    print(f"final perplexity: {perplexity(model, valid_loader):.4f}")


if __name__ == "__main__":
    main()
