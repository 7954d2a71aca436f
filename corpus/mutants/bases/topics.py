"""Multi-label topics of short documents: embedding bag with TF weights, two layers, per-label thresholds, micro F1."""
import random
from collections import Counter

import torch
import torch.nn as nn
import torch.nn.functional as F

LABELS, WORDS, MAX_LEN, EPOCHS, BATCH, LR = 6, 240, 20, 6, 40, 8e-3

rng = random.Random(12)
torch.manual_seed(12)
TOPIC_WORDS = [rng.sample(range(1, WORDS), 22) for _ in range(LABELS)]


def make_document():
    topics = sorted(rng.sample(range(LABELS), rng.choice([1, 1, 2, 3])))
    words = []
    for _ in range(rng.randint(8, MAX_LEN)):
        if rng.random() < 0.7:
            words.append(rng.choice(TOPIC_WORDS[rng.choice(topics)]))
        else:
            words.append(rng.randrange(1, WORDS))
    return words, topics


def batches(docs, size, shuffle):
    order = list(range(len(docs)))
    if shuffle:
        rng.shuffle(order)
    for start in range(0, len(order), size):
        chunk = [docs[i] for i in order[start : start + size]]
        flat, weights, offsets = [], [], []
        target = torch.zeros(len(chunk), LABELS)
        for row, (words, topics) in enumerate(chunk):
            offsets.append(len(flat))
            counts = Counter(words)
            flat.extend(counts)
            weights.extend(c / len(words) for c in counts.values())
            target[row, topics] = 1.0
        yield torch.tensor(flat), torch.tensor(offsets), torch.tensor(weights), target


class TopicNet(nn.Module):
    def __init__(self, dim=32, hidden=48):
        super().__init__()
        self.bag = nn.EmbeddingBag(WORDS, dim, mode="sum")
        self.hidden = nn.Linear(dim, hidden)
        self.drop = nn.Dropout(0.2)
        self.out = nn.Linear(hidden, LABELS)

    def forward(self, flat, offsets, weights):
        h = self.bag(flat, offsets, per_sample_weights=weights)
        h = self.drop(F.relu(self.hidden(h)))
        return self.out(h)


@torch.no_grad()
def micro_f1(model, docs):
    model.eval()
    hit = said = true = 0
    for flat, offsets, weights, target in batches(docs, 100, shuffle=False):
        pred = (torch.sigmoid(model(flat, offsets, weights)) > 0.5).float()
        hit += (pred * target).sum().item()
        said += pred.sum().item()
        true += target.sum().item()
    return 2 * hit / max(said + true, 1)


train_docs = [make_document() for _ in range(1600)]
test_docs = [make_document() for _ in range(400)]
positive = torch.zeros(LABELS)
for _, topics in train_docs:
    positive[topics] += 1
pos_weight = (len(train_docs) - positive) / positive

model = TopicNet()
optimizer = torch.optim.Adam(model.parameters(), lr=LR)
criterion = nn.BCEWithLogitsLoss(pos_weight=pos_weight)
for epoch in range(EPOCHS):
    model.train()
    losses = []
    for flat, offsets, weights, target in batches(train_docs, BATCH, shuffle=True):
        logits = model(flat, offsets, weights)
        loss = criterion(logits, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    print(f"epoch {epoch} loss {sum(losses) / len(losses):.4f} f1 {micro_f1(model, test_docs):.4f}")
print(f"final f1: {micro_f1(model, test_docs):.4f}")
