"""Heartbeats: two leads of an ECG, several findings at once, patients kept apart, judged by macro F1."""
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

FINDINGS = ["fast", "slow", "wide", "inverted", "irregular"]
LENGTH, RATE = 400, 100


def record(rng, patient):
    labels = np.zeros(len(FINDINGS))
    rhythm = rng.random()
    labels[0], labels[1] = rhythm < 0.25, rhythm > 0.75
    labels[2], labels[3], labels[4] = rng.random(3) < (0.3, 0.3, 0.25)
    gap = 45 if labels[0] else 105 if labels[1] else 72
    width = 9.0 if labels[2] else 3.5
    t = np.arange(LENGTH)
    leads = np.zeros((2, LENGTH))
    place = rng.integers(0, gap)
    while place < LENGTH:
        leads[0] += patient["gain"] * np.exp(-0.5 * ((t - place) / width) ** 2)
        leads[1] += 0.6 * patient["gain"] * np.exp(-0.5 * ((t - place - 2) / width) ** 2)
        wave = np.exp(-0.5 * ((t - place - 20) / 6.0) ** 2)
        leads[0] += 0.35 * patient["gain"] * wave
        leads[1] += (-0.4 if labels[3] else 0.4) * patient["gain"] * wave
        place += int(gap * (rng.uniform(0.55, 1.45) if labels[4] else rng.uniform(0.97, 1.03)))
    leads += patient["drift"] * np.sin(2 * np.pi * t / 300 + rng.uniform(0, 6)) + rng.normal(0, 0.08, leads.shape)
    return leads + patient["offset"], labels


def patients(count, each, seed):
    rng = np.random.default_rng(seed)
    signals, labels, owners = [], [], []
    for owner in range(count):
        patient = {"gain": rng.uniform(0.7, 1.6), "drift": rng.uniform(0, 0.3), "offset": rng.normal(0, 1.5)}
        for _ in range(each):
            signal, label = record(rng, patient)
            signals.append(signal)
            labels.append(label)
            owners.append(owner)
    return np.stack(signals), np.stack(labels), np.array(owners)


class Beats(Dataset):
    def __init__(self, signals, labels, augment=False):
        centred = signals - signals.mean(axis=2, keepdims=True)
        self.signals = (centred / centred.std(axis=2, keepdims=True)).astype(np.float32)
        self.labels = labels.astype(np.float32)
        self.augment = augment

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        signal = self.signals[index]
        if self.augment:
            signal = np.roll(signal, np.random.randint(-20, 20), axis=1) * np.float32(np.random.uniform(0.8, 1.2))
        return torch.from_numpy(np.ascontiguousarray(signal)), torch.from_numpy(self.labels[index])


class Residual(nn.Module):
    def __init__(self, inside, outside, stride):
        super().__init__()
        self.conv1 = nn.Conv1d(inside, outside, 7, stride=stride, padding=3, bias=False)
        self.bn1 = nn.BatchNorm1d(outside)
        self.conv2 = nn.Conv1d(outside, outside, 7, padding=3, bias=False)
        self.bn2 = nn.BatchNorm1d(outside)
        self.skip = nn.Conv1d(inside, outside, 1, stride=stride, bias=False)

    def forward(self, x):
        out = torch.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        return torch.relu(out + self.skip(x))


class BeatNet(nn.Module):
    def __init__(self, width=20):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv1d(2, width, 11, stride=2, padding=5, bias=False), nn.BatchNorm1d(width), nn.ReLU())
        self.stage1 = Residual(width, width, 2)
        self.stage2 = Residual(width, 2 * width, 2)
        self.stage3 = Residual(2 * width, 2 * width, 2)
        self.dropout = nn.Dropout(0.1)
        self.head = nn.Linear(4 * width, len(FINDINGS))

    def forward(self, signals):
        x = self.stage3(self.stage2(self.stage1(self.stem(signals))))
        pooled = torch.cat([x.mean(dim=2), x.amax(dim=2)], dim=1)
        return self.head(self.dropout(pooled))


@torch.no_grad()
def macro_f1(model, loader):
    model.eval()
    said, true = [], []
    for signals, labels in loader:
        said.append(torch.sigmoid(model(signals)) > 0.5)
        true.append(labels > 0.5)
    said, true = torch.cat(said), torch.cat(true)
    both = (said & true).sum(dim=0).float()
    return (2 * both / (said.sum(dim=0) + true.sum(dim=0)).clamp(min=1)).mean().item()


def main(epochs=6, batch=32, lr=0.004):
    torch.manual_seed(2)
    np.random.seed(2)
    signals, labels, owners = patients(90, 16, seed=0)
    order = np.random.default_rng(4).permutation(90)
    held_out = np.isin(owners, order[:20])
    train_set = Beats(signals[~held_out], labels[~held_out], augment=True)
    test_set = Beats(signals[held_out], labels[held_out])
    train = DataLoader(train_set, batch_size=batch, shuffle=True)
    test = DataLoader(test_set, batch_size=64)
    positive = torch.from_numpy(train_set.labels).mean(dim=0)
    criterion = nn.BCEWithLogitsLoss(pos_weight=(1 - positive) / positive)
    model = BeatNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=1e-3)
    steps = epochs * len(train)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=lr, total_steps=steps)
    for epoch in range(epochs):
        model.train()
        total = 0.0
        for signals, labels in train:
            optimizer.zero_grad()
            loss = criterion(model(signals), labels)
            loss.backward()
            optimizer.step()
            scheduler.step()
            total += loss.item() * len(labels)
        print(f"epoch {epoch} loss {total / len(train_set):.4f} f1 {macro_f1(model, test):.4f}")
    return macro_f1(model, test)


if __name__ == "__main__":
    print(f"final f1: {main():.4f}")
