"""Tabular regression: numeric and categorical columns, standardised features and target, heteroscedastic head (mean and log-variance), early stopping."""
import copy

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

N, NUMERIC, DISTRICTS, TYPES = 2400, 6, 12, 4


def make_table(seed):
    rng = np.random.default_rng(seed)
    area = rng.gamma(6.0, 18.0, N)
    rooms = np.round(area / 28 + rng.normal(0, 0.7, N)).clip(1)
    age = rng.uniform(0, 90, N)
    lat, lon = rng.uniform(52.3, 52.7, N), rng.uniform(13.1, 13.8, N)
    noise_level = rng.exponential(1.0, N)
    district = rng.integers(0, DISTRICTS, N)
    kind = rng.integers(0, TYPES, N)
    level = rng.normal(0, 60_000, DISTRICTS)
    factor = np.array([0.8, 1.0, 1.25, 1.6])
    price = area * 3200 * factor[kind] + level[district] - age * 900 + 15_000 * np.sin(12 * lat) - 9_000 * noise_level
    price = price + rng.normal(0, 9_000, N)
    numeric = np.stack([area, rooms, age, lat, lon, noise_level], 1).astype(np.float32)
    return numeric, np.stack([district, kind], 1), price.astype(np.float32)


class Regressor(nn.Module):
    def __init__(self, hidden=64, emb=6):
        super().__init__()
        self.district = nn.Embedding(DISTRICTS, emb)
        self.kind = nn.Embedding(TYPES, 3)
        self.body = nn.Sequential(
            nn.Linear(NUMERIC + emb + 3, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
        )
        self.mean = nn.Linear(hidden, 1)
        self.log_var = nn.Linear(hidden, 1)

    def forward(self, numeric, cats):
        parts = [numeric, self.district(cats[:, 0]), self.kind(cats[:, 1])]
        h = self.body(torch.cat(parts, dim=1))
        return self.mean(h).squeeze(1), self.log_var(h).squeeze(1).clamp(-6, 4)


def gaussian_nll(mean, log_var, target):
    return 0.5 * (log_var + (target - mean) ** 2 * torch.exp(-log_var)).mean()


@torch.no_grad()
def rmse(model, data, scale):
    model.eval()
    numeric, cats, price = data
    mean, _ = model(numeric, cats)
    return (mean * scale[1] + scale[0] - price).pow(2).mean().sqrt().item()


def main(epochs=20, lr=3e-3, batch=64, patience=6):
    torch.manual_seed(9)
    numeric, cats, price = make_table(9)
    order = np.random.default_rng(0).permutation(N)
    train_rows, val_rows, test_rows = order[:1600], order[1600:2000], order[2000:]
    mu, sd = numeric[train_rows].mean(0), numeric[train_rows].std(0)
    numeric = (numeric - mu) / sd
    scale = (float(price[train_rows].mean()), float(price[train_rows].std()))

    def tensors(rows):
        return torch.tensor(numeric[rows]), torch.tensor(cats[rows]), torch.tensor(price[rows])

    train, val, test = tensors(train_rows), tensors(val_rows), tensors(test_rows)
    target = (train[2] - scale[0]) / scale[1]
    loader = DataLoader(TensorDataset(train[0], train[1], target), batch_size=batch, shuffle=True)
    model = Regressor()
    opt = torch.optim.Adam(model.parameters(), lr=lr)
    sched = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, factor=0.5, patience=2)
    best, best_model, wait = float("inf"), None, 0
    for epoch in range(epochs):
        model.train()
        total = 0.0
        for x, c, y in loader:
            mean, log_var = model(x, c)
            loss = gaussian_nll(mean, log_var, y)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            opt.step()
            total += loss.item() * len(y)
        error = rmse(model, val, scale)
        sched.step(error)
        if error < best:
            best, best_model, wait = error, copy.deepcopy(model), 0
        else:
            wait += 1
        print(f"epoch {epoch} nll {total / len(target):.4f} val rmse {error:.0f}")
        if wait >= patience:
            break
    print(f"final test_rmse: {rmse(best_model, test, scale):.1f}")


main()
