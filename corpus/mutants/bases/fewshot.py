"""Prototypical network: five-way, three-shot classification of waveforms, in episodes of classes that the test does not share."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

WAY, SHOT, QUERY, LENGTH = 5, 3, 6, 64
TRAIN_CLASSES, TEST_CLASSES, PER_CLASS = 48, 20, 24
EPISODES, LR = 260, 2e-3

rng = np.random.default_rng(17)
torch.manual_seed(17)


def make_class():
    """A class is a sum of three waves; its samples differ by amplitude, shift, offset and noise."""
    freqs = rng.uniform(1, 9, 3)
    phases = rng.uniform(0, 2 * np.pi, 3)
    weights = rng.uniform(0.4, 1.0, 3)
    t = np.linspace(0, 1, LENGTH)
    rows = []
    for _ in range(PER_CLASS):
        shift = rng.normal(0, 0.015)
        wave = sum(w * np.sin(2 * np.pi * f * (t + shift) + p) for f, p, w in zip(freqs, phases, weights))
        rows.append(40 * rng.uniform(0.6, 1.4) * wave + 120 + rng.normal(0, 14, LENGTH))
    return np.stack(rows)


train = np.stack([make_class() for _ in range(TRAIN_CLASSES)]).astype(np.float32)
test = np.stack([make_class() for _ in range(TEST_CLASSES)]).astype(np.float32)
mean, std = train.mean(), train.std()
train = (train - mean) / std
test = (test - mean) / std


def sample_episode(waves):
    chosen = rng.choice(len(waves), WAY, replace=False)
    support, query = [], []
    for c in chosen:
        order = rng.permutation(PER_CLASS)
        support.append(waves[c][order[:SHOT]])
        query.append(waves[c][order[SHOT : SHOT + QUERY]])
    support = torch.from_numpy(np.concatenate(support))[:, None]
    query = torch.from_numpy(np.concatenate(query))[:, None]
    labels = torch.arange(WAY).repeat_interleave(QUERY)
    return support, query, labels


class Encoder(nn.Module):
    def __init__(self, width=24, dim=32):
        super().__init__()
        self.conv1 = nn.Conv1d(1, width, 5, padding=2)
        self.bn1 = nn.BatchNorm1d(width)
        self.conv2 = nn.Conv1d(width, width, 5, padding=2)
        self.bn2 = nn.BatchNorm1d(width)
        self.drop = nn.Dropout(0.05)
        self.fc = nn.Linear(width * LENGTH // 16, dim)

    def forward(self, x):
        x = F.max_pool1d(F.relu(self.bn1(self.conv1(x))), 4)
        x = F.max_pool1d(F.relu(self.bn2(self.conv2(x))), 4)
        return self.fc(self.drop(x.flatten(1)))


class ProtoNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()
        self.scale = nn.Parameter(torch.tensor(0.5))

    def forward(self, support, query):
        z = self.encoder(torch.cat([support, query]))
        zs, zq = z[: len(support)], z[len(support) :]
        prototypes = zs.view(WAY, SHOT, -1).mean(1)
        distances = (zq[:, None] - prototypes[None]).pow(2).sum(-1)
        return -self.scale * distances


@torch.no_grad()
def evaluate(model, waves, episodes=60):
    model.eval()
    right = total = 0
    for _ in range(episodes):
        support, query, labels = sample_episode(waves)
        predicted = model(support, query).argmax(1)
        right += (predicted == labels).sum().item()
        total += len(labels)
    model.train()
    return right / total


model = ProtoNet()
optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=1e-4)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=100, gamma=0.5)
losses = []
for episode in range(EPISODES):
    support, query, labels = sample_episode(train)
    logits = model(support, query)
    loss = F.cross_entropy(logits, labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    losses.append(loss.item())
    if (episode + 1) % 65 == 0:
        print(f"episode {episode + 1}: loss {np.mean(losses[-40:]):.4f} test {evaluate(model, test, 20):.3f}")
print(f"final accuracy: {evaluate(model, test):.4f}")
