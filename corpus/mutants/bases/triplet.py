"""Metric learning: an encoder of noisy time series of many sources, triplets with semi-hard mining, retrieval on sources never seen."""

import argparse
import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--sources", type=int, default=60)
    p.add_argument("--per-source", type=int, default=16)
    p.add_argument("--steps", type=int, default=110)
    p.add_argument("--classes-per-batch", type=int, default=12)
    p.add_argument("--samples-per-class", type=int, default=4)
    p.add_argument("--margin", type=float, default=0.3)
    p.add_argument("--dim", type=int, default=16)
    p.add_argument("--lr", type=float, default=2e-3)
    return p.parse_args()


def make_sources(n_sources, per_source, length=64, seed=0):
    """Each source has a harmonic signature; every recording has a random phase, gain and offset, and noise."""
    rng = np.random.default_rng(seed)
    t = np.arange(length) / length
    xs, ys = [], []
    for source in range(n_sources):
        amps = rng.dirichlet(np.ones(5))
        freqs = rng.choice(np.arange(1, 12), 5, replace=False)
        for _ in range(per_source):
            shift = rng.uniform(0, 1)
            wave = sum(a * np.sin(2 * math.pi * f * (t + shift)) for a, f in zip(amps, freqs))
            gain, offset = rng.uniform(0.5, 2.0), rng.normal(0, 2.0)
            xs.append(gain * (wave + 0.25 * rng.normal(size=length)) + offset)
            ys.append(source)
    return np.stack(xs).astype(np.float32), np.array(ys)


def standardise(x):
    """Every recording for itself: gain and offset say nothing about the source."""
    return (x - x.mean(axis=1, keepdims=True)) / (x.std(axis=1, keepdims=True) + 1e-6)


class BalancedBatches:
    """Batches of P classes with K samples each."""

    def __init__(self, x, y, p, k, seed):
        self.x, self.y, self.p, self.k = torch.from_numpy(x), torch.from_numpy(y), p, k
        self.rng = np.random.default_rng(seed)
        self.by_class = {c: np.flatnonzero(y == c) for c in np.unique(y)}

    def draw(self):
        classes = self.rng.choice(list(self.by_class), self.p, replace=False)
        rows = np.concatenate([self.rng.choice(self.by_class[c], self.k, replace=False) for c in classes])
        return self.x[rows], self.y[rows]


class Encoder(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(1, 24, 7, padding=3, padding_mode="circular"),
            nn.BatchNorm1d(24),
            nn.ReLU(),
            nn.Conv1d(24, 48, 7, padding=3, padding_mode="circular"),
            nn.BatchNorm1d(48),
            nn.ReLU(),
            nn.MaxPool1d(2),
            nn.Conv1d(48, 64, 5, padding=2, padding_mode="circular"),
            nn.ReLU(),
        )
        self.project = nn.Linear(128, dim)

    def forward(self, x):
        h = self.body(x.unsqueeze(1))
        pooled = torch.cat([h.mean(-1), h.amax(-1)], dim=1)
        return F.normalize(self.project(pooled), dim=1)


def pairwise_distances(z):
    squared = (z * z).sum(1)
    d2 = squared[:, None] + squared[None, :] - 2 * z @ z.t()
    return d2.clamp(min=1e-12).sqrt()


def semi_hard_triplet_loss(z, y, margin):
    d = pairwise_distances(z)
    same = y[:, None] == y[None, :]
    eye = torch.eye(len(y), dtype=torch.bool)
    losses = []
    for a, p in (same & ~eye).nonzero().tolist():
        negatives = d[a][~same[a]]
        harder = negatives[negatives > d[a, p].detach()]
        nearest = harder.min() if len(harder) else negatives.max()
        losses.append(F.relu(d[a, p] - nearest + margin))
    return torch.stack(losses).mean()


@torch.no_grad()
def recall_at_1(model, x, y):
    model.eval()
    z = model(torch.from_numpy(x))
    d = torch.cdist(z, z)
    d.fill_diagonal_(float("inf"))
    nearest = d.argmin(1)
    return float((torch.from_numpy(y)[nearest] == torch.from_numpy(y)).float().mean())


def learning_rate(step, steps, peak, warmup=20):
    if step < warmup:
        return peak * (step + 1) / warmup
    return peak * 0.5 * (1 + math.cos(math.pi * (step - warmup) / (steps - warmup)))


def main():
    args = get_args()
    torch.manual_seed(5)
    x, y = make_sources(args.sources, args.per_source)
    x = standardise(x)
    held_out = args.sources // 3
    is_test = y >= args.sources - held_out
    train_x, train_y = x[~is_test], y[~is_test]
    test_x, test_y = x[is_test], y[is_test]
    batches = BalancedBatches(train_x, train_y, args.classes_per_batch, args.samples_per_class, seed=1)

    model = Encoder(args.dim)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, weight_decay=1e-5)
    running = 0.0
    for step in range(args.steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, args.steps, args.lr)
        model.train()
        xb, yb = batches.draw()
        loss = semi_hard_triplet_loss(model(xb), yb, args.margin)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        running = 0.95 * running + 0.05 * loss.item()
        if (step + 1) % 55 == 0:
            print(f"step {step + 1} loss {running / (1 - 0.95 ** (step + 1)):.4f} r@1 {recall_at_1(model, test_x, test_y):.3f}")
    print(f"final recall: {recall_at_1(model, test_x, test_y):.4f}")


if __name__ == "__main__":
    main()
