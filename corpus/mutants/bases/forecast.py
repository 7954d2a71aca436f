"""Forecasting: the next hours of many series from the last ones, the hour of the day and a promotion flag."""
import argparse
import math

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=6)
parser.add_argument("--lr", type=float, default=3e-3)
parser.add_argument("--batch-size", type=int, default=64)
args = parser.parse_args()

CONTEXT, HORIZON, SERIES, LENGTH = 36, 6, 24, 240
torch.manual_seed(0)
rng = np.random.default_rng(0)


def make_series():
    t = np.arange(LENGTH)
    values, flags = [], []
    for _ in range(SERIES):
        level, amp = rng.uniform(5, 50), rng.uniform(1, 4)
        phase = rng.uniform(0, 2 * math.pi)
        promo = (rng.random(LENGTH) < 0.15).astype(np.float32)
        wave = np.sin(2 * math.pi * t / 24 + phase) + 0.5 * np.sin(2 * math.pi * t / 8 + 2 * phase)
        values.append(level + amp * (wave + 1.5 * promo + 0.1 * rng.standard_normal(LENGTH)))
        flags.append(promo)
    return np.stack(values).astype(np.float32), np.stack(flags)


class Windows(Dataset):
    def __init__(self, values, flags, start, stop):
        self.values, self.flags = values, flags
        self.index = [(s, i) for s in range(len(values)) for i in range(start, stop - CONTEXT - HORIZON)]

    def __len__(self):
        return len(self.index)

    def __getitem__(self, k):
        s, i = self.index[k]
        past = torch.tensor(self.values[s, i : i + CONTEXT])
        future = torch.tensor(self.values[s, i + CONTEXT : i + CONTEXT + HORIZON])
        promo = torch.tensor(self.flags[s, i + CONTEXT : i + CONTEXT + HORIZON])
        hour = torch.arange(i, i + CONTEXT) % 24
        return past, hour, promo, future


class Forecaster(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.hour = nn.Embedding(24, 4)
        self.encoder = nn.GRU(5, hidden, batch_first=True)
        self.norm = nn.LayerNorm(hidden)
        self.head = nn.Sequential(nn.Linear(hidden + HORIZON, 64), nn.ReLU(), nn.Dropout(0.05), nn.Linear(64, HORIZON))

    def forward(self, past, hour, promo):
        mean, std = past.mean(dim=1, keepdim=True), past.std(dim=1, keepdim=True) + 1e-3
        x = ((past - mean) / std).unsqueeze(-1)
        x = torch.cat([x, self.hour(hour)], dim=-1)
        _, h = self.encoder(x)
        h = self.norm(h[-1])
        out = self.head(torch.cat([h, promo], dim=-1))
        return out * std + mean


values, flags = make_series()
train = Windows(values, flags, 0, 180)
val = Windows(values, flags, 180, LENGTH)
loader = DataLoader(train, batch_size=args.batch_size, shuffle=True, drop_last=True)
val_loader = DataLoader(val, batch_size=256)

model = Forecaster()
optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-4)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=args.lr, total_steps=args.epochs * len(loader))
criterion = nn.SmoothL1Loss()


def evaluate():
    model.eval()
    error = naive = 0.0
    with torch.no_grad():
        for past, hour, promo, future in val_loader:
            out = model(past, hour, promo)
            error += (out - future).abs().sum().item()
            naive += (past[:, -1:] - future).abs().sum().item()
    return error / naive


for epoch in range(args.epochs):
    model.train()
    total = 0.0
    for past, hour, promo, future in loader:
        optimizer.zero_grad()
        prediction = model(past, hour, promo)
        loss = criterion(prediction, future)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        scheduler.step()
        total += loss.item()
    print(f"epoch {epoch} loss {total / len(loader):.4f} val {evaluate():.3f}")
print(f"final error_vs_naive: {evaluate():.3f}")
