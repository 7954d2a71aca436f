"""Two tasks on one table: whether an advert is clicked, and for how long the page is read then. Plain numpy columns, index loops."""
import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

rng = np.random.default_rng(5)
N, SITES, DEVICES = 6000, 40, 4

# ---------------------------------------------------------------- the table
site = rng.integers(0, SITES, N)
device = rng.integers(0, DEVICES, N)
hour = rng.integers(0, 24, N)
price = rng.lognormal(3.0, 1.0, N)
length = rng.gamma(2.0, 400.0, N)
age = rng.normal(40.0, 12.0, N)
appeal = rng.normal(0, 1.2, SITES)
patience = rng.normal(0, 0.6, DEVICES)
score = appeal[site] + 1.2 * np.sin(2 * np.pi * hour / 24) - 0.7 * (np.log(price) - 3.0) + 0.03 * (age - 40)
clicked = (rng.random(N) < 1 / (1 + np.exp(-2.0 * score))).astype(np.float32)
seconds = np.exp(2.5 + patience[device] + 0.5 * np.log(length / 800) + 0.2 * rng.normal(0, 1, N)) * clicked

# ---------------------------------------------------------------- features
order = rng.permutation(N)
train_rows, test_rows = order[:4800], order[4800:]

numeric = np.stack([np.log(price), np.log(length), age, np.sin(2 * np.pi * hour / 24), np.cos(2 * np.pi * hour / 24)], axis=1)
center = numeric[train_rows].mean(axis=0)
spread = numeric[train_rows].std(axis=0)
numeric = (numeric - center) / spread

numeric = torch.tensor(numeric, dtype=torch.float32)
codes = torch.tensor(np.stack([site, device], axis=1))
clicked = torch.tensor(clicked)
dwell = torch.tensor(np.log1p(seconds), dtype=torch.float32)


class TwoTasks(nn.Module):
    def __init__(self):
        super().__init__()
        self.site = nn.Embedding(SITES, 8)
        self.device = nn.Embedding(DEVICES, 4)
        self.trunk = nn.Sequential(nn.Linear(17, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU())
        self.click = nn.Linear(48, 1)
        self.dwell = nn.Linear(48, 1)

    def forward(self, numbers, codes):
        h = torch.cat([numbers, self.site(codes[:, 0]), self.device(codes[:, 1])], dim=1)
        h = self.trunk(h)
        return self.click(h).squeeze(1), self.dwell(h).squeeze(1)


def auc(scores, labels):
    ranks = scores.argsort().argsort().float() + 1
    ones = labels.sum()
    return ((ranks[labels == 1].sum() - ones * (ones + 1) / 2) / (ones * (len(labels) - ones))).item()


def test(model):
    model.eval()
    with torch.no_grad():
        logit, time = model(numeric[test_rows], codes[test_rows])
    there = clicked[test_rows] == 1
    wanted = dwell[test_rows][there]
    explained = 1 - F.mse_loss(time[there], wanted) / wanted.var()
    model.train()
    return auc(logit, clicked[test_rows]), explained.item()


torch.manual_seed(5)
model = TwoTasks()
optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
BATCH, EPOCHS = 96, 6
steps = math.ceil(len(train_rows) / BATCH) * EPOCHS
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda k: 0.5 * (1 + math.cos(math.pi * k / steps)))

for epoch in range(EPOCHS):
    rng.shuffle(train_rows)
    total = 0.0
    for start in range(0, len(train_rows), BATCH):
        rows = train_rows[start:start + BATCH]
        logit, time = model(numeric[rows], codes[rows])
        click_loss = F.binary_cross_entropy_with_logits(logit, clicked[rows])
        there = clicked[rows]
        dwell_loss = ((time - dwell[rows]) ** 2 * there).sum() / there.sum()
        loss = click_loss + 0.5 * dwell_loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        total += loss.item() * len(rows)
    area, explained = test(model)
    print(f"epoch {epoch} loss {total / len(train_rows):.3f} auc {area:.3f} dwell r2 {explained:.3f}")

area, explained = test(model)
print(f"final auc_and_r2: {area + max(explained, -1):.4f}")
