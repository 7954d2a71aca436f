"""Survival analysis: Cox partial likelihood with a small network on tabular patients, concordance index on a held-out split."""

import argparse

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

COLUMNS = ["age", "pressure", "marker_a", "marker_b", "dose", "stage", "noise_1", "noise_2"]
SCALES = np.array([12.0, 20.0, 0.3, 400.0, 2.0, 1.0, 1.0, 50.0])
CENTRES = np.array([60.0, 130.0, 1.0, 2000.0, 5.0, 2.0, 0.0, 100.0])


def simulate(n, seed):
    """Covariates in their own units, follow-up times in days, and whether the event was seen."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, len(COLUMNS)))
    risk = 0.8 * z[:, 0] + 0.9 * np.tanh(2 * z[:, 2]) - 0.7 * z[:, 4] + 0.8 * z[:, 3] * (z[:, 5] > 0) + 0.6 * z[:, 5]
    event_time = rng.exponential(300 * np.exp(-1.3 * risk))
    censor_time = rng.exponential(900, n)
    time = np.minimum(event_time, censor_time) + 1.0
    event = (event_time <= censor_time).astype(np.float32)
    table = z * SCALES + CENTRES
    return table.astype(np.float32), time.astype(np.float32), event


class Standardiser:
    def fit(self, x):
        self.mean, self.std = x.mean(axis=0), x.std(axis=0)
        return self

    def __call__(self, x):
        return (x - self.mean) / self.std


def cox_loss(log_risk, time, event):
    """Negative partial log-likelihood: each event against everyone still at risk."""
    order = torch.argsort(time, descending=True)
    log_risk, event = log_risk[order], event[order]
    at_risk = torch.logcumsumexp(log_risk, dim=0)
    return -((log_risk - at_risk) * event).sum() / event.sum().clamp(min=1)


def concordance(risk, time, event):
    earlier = (time[:, None] < time[None, :]) & (event[:, None] > 0)
    higher = (risk[:, None] > risk[None, :]).astype(float) + 0.5 * (risk[:, None] == risk[None, :])
    return float((higher * earlier).sum() / earlier.sum())


class RiskNet(nn.Module):
    def __init__(self, features, hidden, dropout):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(features, hidden),
            nn.SiLU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, hidden),
            nn.SiLU(),
        )
        self.risk = nn.Linear(hidden, 1, bias=False)

    def forward(self, x):
        return self.risk(self.layers(x)).squeeze(-1)


class Ema:
    """A running average of the weights, which is what gets evaluated."""

    def __init__(self, model, decay):
        self.decay = decay
        self.shadow = {k: v.detach().clone() for k, v in model.state_dict().items()}

    def update(self, model):
        for k, v in model.state_dict().items():
            self.shadow[k].mul_(self.decay).add_(v.detach(), alpha=1 - self.decay)


@torch.no_grad()
def predict(model, x):
    model.eval()
    return model(torch.from_numpy(x)).numpy()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--patients", type=int, default=2400)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--hidden", type=int, default=48)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--ema", type=float, default=0.95)
    args = parser.parse_args()
    torch.manual_seed(1)

    table, time, event = simulate(args.patients, seed=9)
    cut = int(0.8 * args.patients)
    train = slice(0, cut)
    test = slice(cut, None)
    scale = Standardiser().fit(table[train])
    x_train, x_test = scale(table[train]), scale(table[test])
    data = TensorDataset(torch.from_numpy(x_train), torch.from_numpy(time[train]), torch.from_numpy(event[train]))
    loader = DataLoader(data, batch_size=args.batch_size, shuffle=True, drop_last=True)

    model = RiskNet(len(COLUMNS), args.hidden, args.dropout)
    averaged = RiskNet(len(COLUMNS), args.hidden, args.dropout)
    ema = Ema(model, args.ema)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-3)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=5, gamma=0.5)
    for epoch in range(args.epochs):
        model.train()
        total = 0.0
        for x, t, e in loader:
            optimizer.zero_grad()
            loss = cox_loss(model(x), t, e)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 2.0)
            optimizer.step()
            ema.update(model)
            total += loss.item()
        scheduler.step()
        if epoch % 3 == 1:
            averaged.load_state_dict(ema.shadow)
            c = concordance(predict(averaged, x_test), time[test], event[test])
            print(f"epoch {epoch:2d} loss {total / len(loader):.4f} c-index {c:.4f}")
    averaged.load_state_dict(ema.shadow)
    print(f"final c-index: {concordance(predict(averaged, x_test), time[test], event[test]):.4f}")


if __name__ == "__main__":
    main()
