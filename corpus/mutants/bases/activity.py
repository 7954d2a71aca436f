"""Activity recognition from a wrist sensor: windows of six channels, 1-d convolutions, a trainer class. Tested on other people."""
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

ACTIVITIES = ["rest", "walk", "run", "stairs", "bike"]
RATE, SECONDS, CHANNELS = 32, 2, 6
WINDOW = RATE * SECONDS


def record(person: int, segments: int):
    """A recording of one person: samples x channels, and what the person did in each segment."""
    rng = np.random.default_rng(1000 + person)
    gain, phase = rng.uniform(0.8, 1.2), rng.uniform(0, 2 * np.pi)
    doing = rng.integers(0, len(ACTIVITIES), segments)
    t = np.arange(WINDOW) / RATE
    signal = []
    for what in doing:
        pace = [0.3, 1.6, 2.6, 1.3, 2.0][what] * rng.uniform(0.95, 1.05)
        strength = np.array([[0.1, 0.1, 0.1], [1.0, 0.5, 0.3], [2.0, 1.0, 0.4], [0.8, 0.5, 0.9], [0.3, 0.3, 1.2]][what])
        wave = np.sin(2 * np.pi * pace * t + phase + rng.uniform(0, 2 * np.pi))
        accel = gain * strength * wave[:, None] + np.array([0.0, 0.0, 9.81])
        gyro = 40.0 * gain * strength[::-1] * np.roll(wave, 4)[:, None]
        signal.append(np.concatenate([accel, gyro], axis=1) + rng.normal(0, [0.5] * 3 + [20.0] * 3, (WINDOW, CHANNELS)))
    return np.concatenate(signal).astype(np.float32), doing


class Windows(Dataset):
    def __init__(self, people, segments=48, mean=None, std=None, augment=False):
        self.augment = augment
        self.x, self.y = [], []
        for person in people:
            signal, doing = record(person, segments)
            for i in range(segments):
                self.x.append(signal[i * WINDOW:(i + 1) * WINDOW])
                self.y.append(doing[i])
        stacked = np.stack(self.x)
        self.mean = stacked.mean(axis=(0, 1)) if mean is None else mean
        self.std = stacked.std(axis=(0, 1)) if std is None else std
        self.x = (stacked - self.mean) / self.std

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        window = self.x[i]
        if self.augment:
            window = np.roll(window, np.random.randint(WINDOW), axis=0) * np.random.uniform(0.9, 1.1)
        return torch.from_numpy(np.ascontiguousarray(window.T, dtype=np.float32)), int(self.y[i])


class Net(nn.Module):
    def __init__(self, width=24, classes=len(ACTIVITIES)):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv1d(CHANNELS, width, 7, padding=3), nn.BatchNorm1d(width), nn.ReLU(), nn.MaxPool1d(2),
            nn.Conv1d(width, 2 * width, 5, padding=2), nn.BatchNorm1d(2 * width), nn.ReLU(), nn.MaxPool1d(2),
        )
        self.drop = nn.Dropout(0.2)
        self.head = nn.Linear(2 * width, classes)

    def forward(self, x):
        return self.head(self.drop(self.features(x).mean(dim=-1)))


@dataclass
class Config:
    epochs: int = 5
    batch: int = 32
    lr: float = 3e-3
    weight_decay: float = 1e-4


class Trainer:
    def __init__(self, model, train_set, test_set, config):
        self.model, self.config = model, config
        self.train_loader = DataLoader(train_set, config.batch, shuffle=True)
        self.test_loader = DataLoader(test_set, 64)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr, weight_decay=config.weight_decay)
        self.criterion = nn.CrossEntropyLoss()

    def fit(self):
        for epoch in range(self.config.epochs):
            losses = [self.training_step(batch) for batch in self.train_loader]
            print(f"epoch {epoch} loss {np.mean(losses):.3f} accuracy {self.accuracy():.3f}")

    def training_step(self, batch):
        windows, doing = batch
        self.model.train()
        self.optimizer.zero_grad()
        loss = self.criterion(self.model(windows), doing)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    @torch.no_grad()
    def accuracy(self):
        self.model.eval()
        right = sum((self.model(x).argmax(1) == y).sum().item() for x, y in self.test_loader)
        return right / len(self.test_loader.dataset)


if __name__ == "__main__":
    torch.manual_seed(0)
    np.random.seed(0)
    train_set = Windows(range(0, 12), augment=True)
    test_set = Windows(range(12, 18), mean=train_set.mean, std=train_set.std)
    trainer = Trainer(Net(), train_set, test_set, Config())
    trainer.fit()
    print(f"final accuracy: {trainer.accuracy():.4f}")
