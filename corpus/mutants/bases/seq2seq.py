"""Sequence to sequence: written dates to ISO dates, character by character, with attention and teacher forcing."""

import random

import torch
import torch.nn as nn
import torch.nn.functional as F

CONFIG = {"hidden": 48, "emb": 24, "batch": 64, "steps": 150, "lr": 6e-3, "train": 3000, "test": 200, "clip": 1.0, "forcing": 0.9}
MONTHS = "january february march april may june july august september october november december".split()
PAD, SOS, EOS = 0, 1, 2
CHARS = "abcdefghijklmnopqrstuvwxyz0123456789 ,/-"
STOI = {c: i + 3 for i, c in enumerate(CHARS)}
ITOS = {i: c for c, i in STOI.items()}
VOCAB = len(CHARS) + 3


def make_pair(rng):
    year, month, day = rng.randint(1950, 2030), rng.randint(1, 12), rng.randint(1, 28)
    style = rng.randrange(3)
    if style == 0:
        written = f"{day} {MONTHS[month - 1]} {year}"
    elif style == 1:
        written = f"{MONTHS[month - 1][:3]} {day}, {year}"
    else:
        written = f"{day}/{month}/{year}"
    return written, f"{year}-{month:02d}-{day:02d}"


def to_ids(text):
    return [STOI[c] for c in text]


def pad(rows):
    width = max(len(r) for r in rows)
    return torch.tensor([r + [PAD] * (width - len(r)) for r in rows])


def make_batch(pairs):
    source = pad([to_ids(a) for a, _ in pairs])
    decoder_in = pad([[SOS] + to_ids(b) for _, b in pairs])
    target = pad([to_ids(b) + [EOS] for _, b in pairs])
    return source, decoder_in, target


class Encoder(nn.Module):
    def __init__(self, emb, hidden):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, emb, padding_idx=PAD)
        self.rnn = nn.GRU(emb, hidden // 2, batch_first=True, bidirectional=True)

    def forward(self, source):
        lengths = (source != PAD).sum(1)
        packed = nn.utils.rnn.pack_padded_sequence(self.embed(source), lengths, batch_first=True, enforce_sorted=False)
        out, h = self.rnn(packed)
        out, _ = nn.utils.rnn.pad_packed_sequence(out, batch_first=True)
        return out, torch.cat([h[0], h[1]], dim=-1)


class Attention(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.key = nn.Linear(hidden, hidden, bias=False)
        self.query = nn.Linear(hidden, hidden, bias=False)
        self.score = nn.Linear(hidden, 1, bias=False)

    def forward(self, state, memory, mask):
        e = self.score(torch.tanh(self.key(memory) + self.query(state).unsqueeze(1))).squeeze(-1)
        weights = e.masked_fill(~mask, float("-inf")).softmax(dim=-1)
        return (weights.unsqueeze(-1) * memory).sum(1)


class Decoder(nn.Module):
    def __init__(self, emb, hidden):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, emb, padding_idx=PAD)
        self.attention = Attention(hidden)
        self.cell = nn.GRUCell(emb + hidden, hidden)
        self.out = nn.Linear(2 * hidden, VOCAB)

    def step(self, token, state, memory, mask):
        context = self.attention(state, memory, mask)
        state = self.cell(torch.cat([self.embed(token), context], -1), state)
        return self.out(torch.cat([state, context], -1)), state


class Translator(nn.Module):
    def __init__(self, emb, hidden):
        super().__init__()
        self.encoder = Encoder(emb, hidden)
        self.bridge = nn.Linear(hidden, hidden)
        self.decoder = Decoder(emb, hidden)

    def forward(self, source, decoder_in, forcing):
        memory, last = self.encoder(source)
        mask = source != PAD
        state = torch.tanh(self.bridge(last))
        token, logits = decoder_in[:, 0], []
        for t in range(decoder_in.shape[1]):
            step_logits, state = self.decoder.step(token, state, memory, mask)
            logits.append(step_logits)
            if t + 1 < decoder_in.shape[1]:
                token = decoder_in[:, t + 1] if random.random() < forcing else step_logits.argmax(-1)
        return torch.stack(logits, dim=1)

    @torch.no_grad()
    def translate(self, source, limit=12):
        memory, last = self.encoder(source)
        state = torch.tanh(self.bridge(last))
        token = torch.full((len(source),), SOS)
        tokens = []
        for _ in range(limit):
            logits, state = self.decoder.step(token, state, memory, source != PAD)
            token = logits.argmax(-1)
            tokens.append(token)
        return torch.stack(tokens, 1)


def sequence_loss(logits, target):
    return F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=PAD)


def exact_match(model, pairs):
    model.eval()
    source, _, _ = make_batch(pairs)
    right = 0
    for row, (_, iso) in zip(model.translate(source).tolist(), pairs):
        row = row[: row.index(EOS)] if EOS in row else row
        right += "".join(ITOS.get(i, "?") for i in row) == iso
    return right / len(pairs)


def main(cfg):
    random.seed(11)
    torch.manual_seed(11)
    rng = random.Random(4)
    pairs = [make_pair(rng) for _ in range(cfg["train"] + cfg["test"])]
    train, test = pairs[: cfg["train"]], pairs[cfg["train"] :]
    model = Translator(cfg["emb"], cfg["hidden"])
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg["lr"])
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=cfg["steps"])
    total = 0.0
    for step in range(1, cfg["steps"] + 1):
        model.train()
        source, decoder_in, target = make_batch(random.sample(train, cfg["batch"]))
        logits = model(source, decoder_in, cfg["forcing"])
        loss = sequence_loss(logits, target)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), cfg["clip"])
        optimizer.step()
        scheduler.step()
        total += loss.item()
        if step % 50 == 0:
            print(f"step {step}: loss {total / 50:.4f}, exact {exact_match(model, test):.3f}")
            total = 0.0
    print(f"final exact: {exact_match(model, test):.4f}")


if __name__ == "__main__":
    main(CONFIG)
