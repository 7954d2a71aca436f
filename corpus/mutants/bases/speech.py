"""A small CTC recogniser: synthetic spoken digit strings as log-mel-like frames, conv subsampling, BiGRU, greedy decoding."""

import argparse
import math
import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

N_MELS = 20
DIGITS = 10
BLANK = 0


class SpokenDigits(Dataset):
    """Every digit has two formants; an utterance is 2 to 5 digits of varying length with pauses and noise."""

    def __init__(self, size, seed):
        rng = random.Random(seed)
        gen = torch.Generator().manual_seed(seed)
        proto_gen = torch.Generator().manual_seed(77)
        protos = torch.rand(DIGITS, 2, generator=proto_gen) * (N_MELS - 4) + 2
        mel = torch.arange(N_MELS).float()
        self.items = []
        for _ in range(size):
            digits = [rng.randrange(DIGITS) for _ in range(rng.randint(2, 5))]
            frames = []
            for d in digits:
                n = rng.randint(6, 10)
                for t in range(n):
                    c1 = protos[d, 0] + 1.5 * math.sin(math.pi * t / n)
                    c2 = protos[d, 1] - 1.5 * math.sin(math.pi * t / n)
                    energy = torch.exp(-0.5 * (mel - c1) ** 2) + 0.7 * torch.exp(-0.5 * (mel - c2) ** 2)
                    frames.append(energy)
                for _ in range(rng.randint(2, 4)):
                    frames.append(torch.zeros(N_MELS))
            wave = torch.stack(frames) + 0.1 * torch.randn(len(frames), N_MELS, generator=gen).abs()
            self.items.append((torch.log(wave + 1e-3), torch.tensor([d + 1 for d in digits])))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


class Collate:
    def __init__(self, mean, std):
        self.mean, self.std = mean, std

    def __call__(self, batch):
        feats = [(f - self.mean) / self.std for f, _ in batch]
        labels = [y for _, y in batch]
        feat_lens = torch.tensor([f.shape[0] for f in feats])
        label_lens = torch.tensor([len(y) for y in labels])
        padded = torch.zeros(len(batch), int(feat_lens.max()), N_MELS)
        for i, f in enumerate(feats):
            padded[i, : f.shape[0]] = f
        return padded, feat_lens, torch.cat(labels), label_lens


def spec_augment(x, max_width=3):
    x = x.clone()
    start = random.randrange(N_MELS - max_width)
    x[:, :, start : start + random.randint(0, max_width)] = 0.0
    return x


class Recogniser(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv1d(N_MELS, hidden, 3, padding=1),
            nn.BatchNorm1d(hidden),
            nn.ReLU(),
            nn.Conv1d(hidden, hidden, 3, stride=2, padding=1),
            nn.ReLU(),
        )
        self.rnn = nn.GRU(hidden, hidden, batch_first=True, bidirectional=True)
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(2 * hidden, DIGITS + 1)

    def forward(self, feats, lengths):
        h = self.conv(feats.transpose(1, 2)).transpose(1, 2)
        out_lens = (lengths + 1) // 2
        packed = nn.utils.rnn.pack_padded_sequence(h, out_lens, batch_first=True, enforce_sorted=False)
        h, _ = nn.utils.rnn.pad_packed_sequence(self.rnn(packed)[0], batch_first=True)
        return F.log_softmax(self.head(self.drop(h)), dim=-1), out_lens


def edit_distance(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        diag, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            diag, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diag + (x != y))
    return row[-1]


def greedy(log_probs, lens):
    texts = []
    for path, n in zip(log_probs.argmax(-1).tolist(), lens.tolist()):
        path = path[:n]
        texts.append([p for k, p in enumerate(path) if p != BLANK and (k == 0 or path[k - 1] != p)])
    return texts


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    errors = total = 0
    for feats, feat_lens, labels, label_lens in loader:
        log_probs, out_lens = model(feats, feat_lens)
        for hyp, ref in zip(greedy(log_probs, out_lens), labels.split(label_lens.tolist())):
            errors += edit_distance(hyp, ref.tolist())
            total += len(ref)
    return errors / total


def train_epoch(model, loader, optimizer, scheduler, ctc, clip):
    model.train()
    running = 0.0
    for feats, feat_lens, labels, label_lens in loader:
        log_probs, out_lens = model(spec_augment(feats), feat_lens)
        loss = ctc(log_probs.transpose(0, 1), labels, out_lens, label_lens)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        scheduler.step()
        running += loss.item()
    return running / len(loader)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=6e-3)
    parser.add_argument("--clip", type=float, default=5.0)
    args = parser.parse_args()
    torch.manual_seed(3)
    random.seed(3)

    train_set, test_set = SpokenDigits(448, seed=1), SpokenDigits(96, seed=2)
    frames = torch.cat([f for f, _ in train_set.items])
    collate = Collate(frames.mean(0), frames.std(0))
    train_loader = DataLoader(train_set, args.batch_size, shuffle=True, collate_fn=collate)
    test_loader = DataLoader(test_set, args.batch_size, collate_fn=collate)

    model = Recogniser()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.lr, total_steps=args.epochs * len(train_loader))
    ctc = nn.CTCLoss(blank=BLANK, zero_infinity=True)
    for epoch in range(args.epochs):
        loss = train_epoch(model, train_loader, optimizer, scheduler, ctc, args.clip)
        print(f"epoch {epoch} loss {loss:.3f} wer {evaluate(model, test_loader):.3f}")
    print(f"final wer: {evaluate(model, test_loader):.4f}")


if __name__ == "__main__":
    main()
