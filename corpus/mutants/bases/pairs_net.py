"""Siamese network: are two noisy waveforms of the same source? Shared encoder, contrastive loss with a margin, threshold by validation."""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

SOURCES, LENGTH, MARGIN = 24, 64, 1.0


def source_bank(rng):
    return rng.uniform(1.0, 8.0, (SOURCES, 3)), rng.uniform(0.3, 1.0, (SOURCES, 3))


def record(rng, freqs, amps):
    t = np.linspace(0, 1, LENGTH, dtype=np.float32)
    wave = sum(a * np.sin(2 * np.pi * (f * t + rng.uniform(0, 0.15))) for f, a in zip(freqs, amps))
    gain, offset = rng.uniform(20, 60), rng.uniform(-100, 100)
    return (gain * (wave + rng.normal(0, 0.15, LENGTH)) + offset).astype(np.float32)


class PairSet(Dataset):
    def __init__(self, n, seed, bank):
        rng = np.random.default_rng(seed)
        freqs, amps = bank
        self.left, self.right, self.same = [], [], []
        for _ in range(n):
            a = int(rng.integers(SOURCES))
            same = rng.random() < 0.5
            b = a if same else int((a + rng.integers(1, SOURCES)) % SOURCES)
            self.left.append(record(rng, freqs[a], amps[a]))
            self.right.append(record(rng, freqs[b], amps[b]))
            self.same.append(float(a == b))

    def __len__(self):
        return len(self.same)

    @staticmethod
    def normalise(wave):
        return (wave - wave.mean()) / wave.std()

    def __getitem__(self, i):
        left, right = self.normalise(self.left[i]), self.normalise(self.right[i])
        return torch.from_numpy(left)[None], torch.from_numpy(right)[None], torch.tensor(self.same[i])


class Encoder(nn.Module):
    def __init__(self, width=16, out=16):
        super().__init__()
        self.conv1 = nn.Conv1d(1, width, 7, stride=2, padding=3)
        self.conv2 = nn.Conv1d(width, 2 * width, 5, stride=2, padding=2)
        self.norm = nn.BatchNorm1d(2 * width)
        self.fc = nn.Linear(2 * width * (LENGTH // 4), out)

    def forward(self, x):
        h = F.relu(self.conv1(x))
        h = F.relu(self.norm(self.conv2(h)))
        return self.fc(h.flatten(1))


class Siamese(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()

    def forward(self, left, right):
        return F.pairwise_distance(self.encoder(left), self.encoder(right))


def contrastive(distance, same):
    pull = same * distance.pow(2)
    push = (1 - same) * F.relu(MARGIN - distance).pow(2)
    return (pull + push).mean()


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    distances, same = [], []
    for left, right, label in loader:
        distances.append(model(left, right))
        same.append(label)
    distances, same = torch.cat(distances), torch.cat(same)
    return max(((distances < cut).float() == same).float().mean().item() for cut in torch.linspace(0.1, 1.5, 29))


def main(epochs=8, lr=2e-3):
    torch.manual_seed(6)
    bank = source_bank(np.random.default_rng(6))
    train_set, test_set = PairSet(1200, 7, bank), PairSet(400, 8, bank)
    train_loader = DataLoader(train_set, batch_size=48, shuffle=True)
    test_loader = DataLoader(test_set, batch_size=100)
    model = Siamese()
    opt = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=1e-3)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=epochs)
    for epoch in range(epochs):
        model.train()
        total = 0.0
        for left, right, same in train_loader:
            distance = model(left, right)
            loss = contrastive(distance, same)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
        sched.step()
        print(f"epoch {epoch} loss {total / len(train_loader):.4f} acc {accuracy(model, test_loader):.4f}")
    print(f"final test_acc: {accuracy(model, test_loader):.4f}")


if __name__ == "__main__":
    main()
