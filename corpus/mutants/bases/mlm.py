"""Masked tokens: a small encoder is trained to fill in what was masked out of sentences of a made-up grammar."""
import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

PAD, MASK, BOS, EOS = 0, 1, 2, 3
FIRST = 4
NOUNS, VERBS, COLOURS, PLACES = 12, 12, 8, 8
VOCAB = FIRST + NOUNS + VERBS + COLOURS + PLACES


def sentence(rng):
    noun = rng.randrange(NOUNS)
    words = [BOS]
    if rng.random() < 0.6:
        words.append(FIRST + NOUNS + VERBS + noun % COLOURS)
    words.append(FIRST + noun)
    words.append(FIRST + NOUNS + (noun * 5 + 3) % VERBS)
    if rng.random() < 0.7:
        words.append(FIRST + NOUNS + VERBS + COLOURS + (noun * 3 + 1) % PLACES)
    other = (noun + rng.choice([1, 4])) % NOUNS
    words.append(FIRST + other)
    words.append(FIRST + NOUNS + (other * 5 + 3) % VERBS)
    words.append(EOS)
    return words


class Sentences(Dataset):
    def __init__(self, count, seed):
        rng = random.Random(seed)
        self.rows = [sentence(rng) for _ in range(count)]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return torch.tensor(self.rows[index])


def mask_tokens(tokens, p=0.2):
    """The tokens with some masked, and labels that are -100 everywhere else."""
    special = tokens < FIRST
    probability = torch.full(tokens.shape, p).masked_fill(special, 0.0)
    chosen = torch.bernoulli(probability).bool()
    labels = tokens.masked_fill(~chosen, -100)
    inputs = tokens.clone()
    replaced = chosen & (torch.rand(tokens.shape) < 0.9)
    inputs[replaced] = MASK
    return inputs, labels


def collate(rows):
    tokens = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)
    inputs, labels = mask_tokens(tokens)
    return inputs, labels, tokens == PAD


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def attend(self, x, padding):
        B, T, C = x.shape
        q, k, v = self.qkv(x).split(C, dim=2)
        q, k, v = (t.view(B, T, self.heads, C // self.heads).transpose(1, 2) for t in (q, k, v))
        scores = q @ k.transpose(-2, -1) / (C // self.heads) ** 0.5
        scores = scores.masked_fill(padding[:, None, None, :], float("-inf"))
        mixed = scores.softmax(dim=-1) @ v
        return self.out(mixed.transpose(1, 2).reshape(B, T, C))

    def forward(self, x, padding):
        x = x + self.attend(self.norm1(x), padding)
        x = x + self.mlp(self.norm2(x))
        return x


class Encoder(nn.Module):
    def __init__(self, width=48, heads=4, depth=2, longest=12):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, width, padding_idx=PAD)
        self.position = nn.Parameter(torch.randn(longest, width) * 0.02)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCAB)

    def forward(self, tokens, padding):
        x = self.embed(tokens) + self.position[: tokens.size(1)]
        for block in self.blocks:
            x = block(x, padding)
        return self.head(self.norm(x))


def mlm_loss(logits, labels):
    return F.cross_entropy(logits.view(-1, VOCAB), labels.view(-1), ignore_index=-100)


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    right = total = 0
    for inputs, labels, padding in loader:
        logits = model(inputs, padding)
        asked = labels != -100
        right += (logits.argmax(-1)[asked] == labels[asked]).sum().item()
        total += asked.sum().item()
    return right / total


def main(epochs=6, batch=32, lr=2e-3, warmup=40):
    torch.manual_seed(3)
    train = DataLoader(Sentences(2400, 0), batch_size=batch, shuffle=True, collate_fn=collate)
    test = DataLoader(Sentences(400, 1), batch_size=100, collate_fn=collate)
    model = Encoder()
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.01)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / warmup))
    for epoch in range(epochs):
        model.train()
        total = 0.0
        for inputs, labels, padding in train:
            logits = model(inputs, padding)
            loss = mlm_loss(logits, labels)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            total += loss.item()
        print(f"epoch {epoch} loss {total / len(train):.4f} masked accuracy {evaluate(model, test):.4f}")
    return evaluate(model, test)


if __name__ == "__main__":
    print(f"final accuracy: {main():.4f}")
