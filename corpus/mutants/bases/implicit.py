"""Recommendation from implicit feedback: users and items with embeddings and item features, trained on pairs (BPR), measured by hits among ten."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

USERS, ITEMS, TASTES, DIM = 300, 160, 6, 16
EPOCHS, BATCH, LR, TOP = 14, 256, 1e-2, 10

rng = np.random.default_rng(5)
torch.manual_seed(5)


def make_world():
    """Who likes what: a user has tastes, an item has kinds; clicks come with a time."""
    user_tastes = rng.dirichlet(np.full(TASTES, 0.25), USERS)
    item_kinds = rng.dirichlet(np.full(TASTES, 0.15), ITEMS)
    scores = user_tastes @ item_kinds.T + 0.02 * rng.gumbel(size=(USERS, ITEMS))
    clicks = []
    for user in range(USERS):
        liked = np.argsort(-scores[user])[:24]
        chosen = rng.choice(liked, 14, replace=False)
        clicks += [(user, item, rng.integers(0, 10_000)) for item in chosen]
    features = np.concatenate([item_kinds, rng.normal(size=(ITEMS, 4))], 1)
    prices = np.exp(rng.normal(3, 1, ITEMS))
    return np.array(clicks), features.astype(np.float32), prices


clicks, item_features, prices = make_world()
clicks = clicks[np.lexsort((clicks[:, 2], clicks[:, 0]))]
last = np.append(clicks[1:, 0] != clicks[:-1, 0], True)
train_clicks, test_clicks = clicks[~last], clicks[last]
seen = {user: set() for user in range(USERS)}
for user, item, _ in train_clicks:
    seen[user].add(item)
log_price = np.log(prices)
price = ((log_price - log_price.mean()) / log_price.std()).astype(np.float32)
item_table = torch.from_numpy(np.concatenate([item_features, price[:, None]], 1))


class Recommender(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.users = nn.Embedding(USERS, DIM)
        self.items = nn.Embedding(ITEMS, DIM)
        self.bias = nn.Embedding(ITEMS, 1)
        self.side = nn.Sequential(nn.Linear(features.shape[1], 32), nn.ReLU(), nn.Linear(32, DIM))
        self.register_buffer("features", features)
        nn.init.normal_(self.users.weight, std=0.1)
        nn.init.normal_(self.items.weight, std=0.1)
        nn.init.zeros_(self.bias.weight)

    def item_vectors(self, items):
        return self.items(items) + self.side(self.features[items])

    def forward(self, users, items):
        return (self.users(users) * self.item_vectors(items)).sum(-1) + self.bias(items).squeeze(-1)

    def all_scores(self, users):
        every = torch.arange(ITEMS)
        return self.users(users) @ self.item_vectors(every).T + self.bias.weight.squeeze(-1)


def sample_negatives(users):
    negatives = []
    for user in users:
        item = rng.integers(ITEMS)
        while item in seen[user]:
            item = rng.integers(ITEMS)
        negatives.append(item)
    return np.array(negatives)


def batches():
    order = rng.permutation(len(train_clicks))
    for start in range(0, len(order), BATCH):
        rows = train_clicks[order[start : start + BATCH]]
        users, positives = rows[:, 0], rows[:, 1]
        negatives = sample_negatives(users)
        yield tuple(torch.from_numpy(column) for column in (users, positives, negatives))


@torch.no_grad()
def hit_rate(model):
    model.eval()
    users = torch.from_numpy(test_clicks[:, 0])
    scores = model.all_scores(users)
    for row, user in enumerate(test_clicks[:, 0]):
        scores[row, list(seen[user])] = -1e9
    best = scores.topk(TOP, dim=1).indices
    wanted = torch.from_numpy(test_clicks[:, 1])
    hits = (best == wanted[:, None]).any(1).float().mean().item()
    model.train()
    return hits


model = Recommender(item_table)
optimizer = torch.optim.Adam(model.parameters(), lr=LR, weight_decay=1e-5)
for epoch in range(EPOCHS):
    total = count = 0
    for users, positives, negatives in batches():
        liked = model(users, positives)
        other = model(users, negatives)
        loss = -F.logsigmoid(liked - other).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(users)
        count += len(users)
    if epoch % 3 == 2:
        print(f"epoch {epoch}: loss {total / count:.4f} hits {hit_rate(model):.3f}")
print(f"final hits: {hit_rate(model):.4f}")
