"""Learning to rank: twelve documents for each question, a listwise loss, measured by NDCG. Tables in numpy, batches from TensorDataset."""
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

DOCS, QUERY_DIM, DOC_DIM = 12, 6, 10


def collection(queries, seed):
    """Features of every pair of a question and a document, one row for each pair, and grades from 0 to 4."""
    gen = np.random.RandomState(seed)
    world = np.random.RandomState(99)
    mix = world.normal(size=(QUERY_DIM, DOC_DIM)) / np.sqrt(QUERY_DIM)
    query = gen.normal(size=(queries, QUERY_DIM))
    docs = gen.normal(size=(queries * DOCS, DOC_DIM)) * np.linspace(0.5, 20, DOC_DIM) + np.linspace(-5, 5, DOC_DIM)
    plain = (docs - np.linspace(-5, 5, DOC_DIM)) / np.linspace(0.5, 20, DOC_DIM)
    repeated = np.repeat(query, DOCS, axis=0)
    match = ((repeated @ mix) * plain).sum(axis=1) / np.sqrt(DOC_DIM) + 0.6 * plain[:, 0] + 0.2 * gen.normal(size=len(docs))
    grades = np.digitize(match, [-0.5, 0.3, 1.0, 1.8])
    features = np.concatenate([repeated, docs], axis=1)
    return features.astype(np.float32), grades.astype(np.int64)


def grouped(features, grades):
    x = torch.from_numpy(features).view(-1, DOCS, features.shape[1])
    y = torch.from_numpy(grades).view(-1, DOCS)
    return x, y


class Ranker(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.query = nn.Linear(QUERY_DIM, width)
        self.doc = nn.Linear(DOC_DIM, width)
        self.score = nn.Sequential(nn.Linear(3 * width, width), nn.GELU(), nn.Linear(width, 1))

    def forward(self, x):
        q, d = self.query(x[..., :QUERY_DIM]), self.doc(x[..., QUERY_DIM:])
        return self.score(torch.cat([q, d, q * d], dim=-1)).squeeze(-1)


def listwise(scores, grades):
    wanted = torch.softmax(grades.float(), dim=-1)
    return -(wanted * torch.log_softmax(scores, dim=-1)).sum(dim=-1).mean()


def ndcg(scores, grades, at=5):
    gain = 2.0 ** grades - 1
    discount = 1 / torch.log2(torch.arange(2, at + 2).float())
    found = (gain.gather(1, scores.argsort(dim=1, descending=True)[:, :at]) * discount).sum(1)
    best = (gain.sort(dim=1, descending=True).values[:, :at] * discount).sum(1)
    return (found / best.clamp(min=1e-6)).mean().item()


def evaluate(model, x, y):
    model.eval()
    with torch.inference_mode():
        value = ndcg(model(x), y)
    model.train()
    return value


torch.manual_seed(4)
features, grades = collection(500, seed=1)
mean, std = features.mean(axis=0), features.std(axis=0)
x_train, y_train = grouped((features - mean) / std, grades)
features, grades = collection(150, seed=2)
x_test, y_test = grouped((features - mean) / std, grades)

loader = DataLoader(TensorDataset(x_train, y_train), batch_size=25, shuffle=True)
model = Ranker()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.9)
for epoch in range(14):
    for x, y in loader:
        loss = listwise(model(x), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    scheduler.step()
    print(f"epoch {epoch}: loss {loss.item():.4f}, ndcg {evaluate(model, x_test, y_test):.4f}")
print(f"final ndcg: {evaluate(model, x_test, y_test):.4f}")
