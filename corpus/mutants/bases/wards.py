"""Patients of a hospital: numbers and categories, standardised columns, two heads: days of stay and whether they come back."""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

NUMERIC = ["age", "pressure", "pulse", "weight", "sugar", "visits"]
WARDS, SOURCES = 8, 5


def make_records(n, seed):
    rng = np.random.default_rng(seed)
    records = {
        "age": rng.normal(55, 16, n),
        "pressure": rng.normal(130, 18, n),
        "pulse": rng.normal(78, 11, n),
        "weight": rng.normal(74, 13, n),
        "sugar": rng.gamma(4.0, 26.0, n),
        "visits": rng.poisson(2.0, n).astype(float),
        "ward": rng.integers(0, WARDS, n),
        "source": rng.integers(0, SOURCES, n),
    }
    ward_effect = np.linspace(-1.4, 1.4, WARDS)[rng.permutation(WARDS)]
    source_effect = np.linspace(-0.8, 0.8, SOURCES)
    frail = (records["age"] - 55) / 16 + 0.6 * (records["sugar"] - 104) / 52 + ward_effect[records["ward"]]
    strain = (records["pressure"] - 130) / 18 * (records["pulse"] - 78) / 11
    records["days"] = np.exp(1.5 + 0.35 * frail + 0.15 * strain + 0.1 * rng.normal(size=n))
    chance = 1.6 * (records["visits"] - 2.0) + source_effect[records["source"]] + 0.7 * frail
    records["back"] = (chance + 0.5 * rng.normal(size=n) > 0.8).astype(int)
    return records


class Standardiser:
    def fit(self, table):
        self.mean = table.mean(axis=0)
        self.std = table.std(axis=0)
        return self

    def transform(self, table):
        return (table - self.mean) / self.std


def split(n, seed, held_out=0.25):
    order = np.random.default_rng(seed).permutation(n)
    cut = int(n * (1 - held_out))
    return order[:cut], order[cut:]


def as_dataset(records, rows, scaler, target_scaler):
    numbers = scaler.transform(np.stack([records[name][rows] for name in NUMERIC], axis=1))
    categories = np.stack([records["ward"][rows], records["source"][rows]], axis=1)
    days = target_scaler.transform(np.log(records["days"][rows])[:, None])
    back = records["back"][rows]
    return TensorDataset(
        torch.tensor(numbers, dtype=torch.float32),
        torch.tensor(categories, dtype=torch.long),
        torch.tensor(days, dtype=torch.float32).squeeze(1),
        torch.tensor(back, dtype=torch.float32),
    )


class WardNet(nn.Module):
    def __init__(self, hidden=48, emb=6, p=0.05):
        super().__init__()
        self.ward = nn.Embedding(WARDS, emb)
        self.source = nn.Embedding(SOURCES, emb)
        self.trunk = nn.Sequential(
            nn.Linear(len(NUMERIC) + 2 * emb, hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Dropout(p),
            nn.Linear(hidden, hidden), nn.ReLU(),
        )
        self.days = nn.Linear(hidden, 1)
        self.back = nn.Linear(hidden, 1)

    def forward(self, numbers, categories):
        ward = self.ward(categories[:, 0])
        source = self.source(categories[:, 1])
        h = self.trunk(torch.cat([numbers, ward, source], dim=1))
        return self.days(h).squeeze(1), self.back(h).squeeze(1)


def joint_loss(days_out, back_out, days, back, weight=1.0):
    regression = F.smooth_l1_loss(days_out, days)
    classification = F.binary_cross_entropy_with_logits(back_out, back)
    return regression + weight * classification


@torch.no_grad()
def evaluate(model, dataset):
    model.eval()
    numbers, categories, days, back = dataset.tensors
    days_out, back_out = model(numbers, categories)
    r2 = 1 - ((days_out - days) ** 2).mean() / days.var()
    accuracy = ((back_out > 0) == (back > 0.5)).float().mean()
    return r2.item(), accuracy.item()


def main(epochs=12, batch=64, lr=0.05):
    torch.manual_seed(9)
    records = make_records(3000, seed=9)
    train_rows, test_rows = split(3000, seed=1)
    table = np.stack([records[name][train_rows] for name in NUMERIC], axis=1)
    scaler = Standardiser().fit(table)
    target_scaler = Standardiser().fit(np.log(records["days"][train_rows])[:, None])
    train = as_dataset(records, train_rows, scaler, target_scaler)
    test = as_dataset(records, test_rows, scaler, target_scaler)
    loader = DataLoader(train, batch_size=batch, shuffle=True, drop_last=True)
    model = WardNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[8, 10], gamma=0.3)
    for epoch in range(epochs):
        model.train()
        total = 0.0
        for numbers, categories, days, back in loader:
            optimizer.zero_grad()
            days_out, back_out = model(numbers, categories)
            loss = joint_loss(days_out, back_out, days, back)
            loss.backward()
            optimizer.step()
            total += loss.item()
        scheduler.step()
        r2, accuracy = evaluate(model, test)
        print(f"epoch {epoch:2d} loss {total / len(loader):.4f} r2 {r2:.4f} accuracy {accuracy:.4f}")
    r2, accuracy = evaluate(model, test)
    return 0.5 * (r2 + accuracy)


if __name__ == "__main__":
    print(f"final score: {main():.4f}")
