"""Sound events: which of five sounds are heard in each frame of a mixed clip (several at once), from a spectrogram."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

BANDS, FRAMES, EVENTS = 24, 48, ["alarm", "bark", "clap", "drone", "engine"]
TRAIN, TEST, EPOCHS, BATCH, LR = 480, 120, 9, 24, 4e-3

torch.manual_seed(41)
rng = np.random.default_rng(41)
PROFILES = {name: rng.dirichlet(np.full(BANDS, 0.3)) * BANDS for name in EVENTS}
LENGTHS = {"alarm": 10, "bark": 4, "clap": 3, "drone": 20, "engine": 14}


def make_clip():
    """Energies of bands over frames, and a list of (name, first frame, last frame)."""
    energy = rng.gamma(2.0, 0.3, (BANDS, FRAMES))
    events = []
    for _ in range(rng.integers(2, 5)):
        name = EVENTS[rng.integers(len(EVENTS))]
        length = LENGTHS[name] + rng.integers(0, 3)
        onset = rng.integers(0, FRAMES - length)
        energy[:, onset : onset + length] += rng.uniform(0.6, 1.4) * PROFILES[name][:, None]
        events.append((name, onset, onset + length))
    return energy.astype(np.float32), events


class Clips(Dataset):
    def __init__(self, count, train):
        self.clips = [make_clip() for _ in range(count)]
        self.train = train

    def __len__(self):
        return len(self.clips)

    def labels(self, events):
        target = np.zeros((len(EVENTS), FRAMES), dtype=np.float32)
        for name, onset, offset in events:
            target[EVENTS.index(name), onset:offset] = 1.0
        return target

    def __getitem__(self, index):
        energy, events = self.clips[index]
        spectrum = np.log(energy + 1e-3)
        target = self.labels(events)
        if self.train:
            shift = np.random.randint(FRAMES)
            spectrum, target = np.roll(spectrum, shift, 1), np.roll(target, shift, 1)
            low = np.random.randint(BANDS - 3)
            spectrum[low : low + 2] = spectrum.mean()
        spectrum = (spectrum - spectrum.mean()) / (spectrum.std() + 1e-6)
        return torch.from_numpy(spectrum), torch.from_numpy(target)


class Detector(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.first = nn.Conv1d(BANDS, width, 3, padding=1)
        self.norm = nn.BatchNorm1d(width)
        self.second = nn.Conv1d(width, width, 3, padding=1)
        self.memory = nn.GRU(width, width // 2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(width, len(EVENTS))

    def forward(self, spectrum):
        x = F.relu(self.norm(self.first(spectrum)))
        x = F.relu(self.second(x))
        x, _ = self.memory(x.transpose(1, 2))
        return self.head(x).transpose(1, 2)


@torch.no_grad()
def f1(model, loader):
    model.eval()
    hits = said = there = 0
    for spectrum, target in loader:
        heard = model(spectrum) > 0
        hits += (heard & (target > 0.5)).sum().item()
        said += heard.sum().item()
        there += (target > 0.5).sum().item()
    model.train()
    return 2 * hits / max(said + there, 1)


np.random.seed(41)
train_loader = DataLoader(Clips(TRAIN, True), BATCH, shuffle=True)
test_loader = DataLoader(Clips(TEST, False), 60)
positives = np.stack([train_loader.dataset.labels(events).mean(1) for _, events in train_loader.dataset.clips]).mean(0)
weight = torch.tensor(np.sqrt((1 - positives) / positives), dtype=torch.float32)[:, None]
model = Detector()
optimizer = torch.optim.Adam(model.parameters(), lr=LR)
for epoch in range(EPOCHS):
    total = 0.0
    for spectrum, target in train_loader:
        logits = model(spectrum)
        loss = F.binary_cross_entropy_with_logits(logits, target, pos_weight=weight)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    if epoch % 3 == 2:
        print(f"epoch {epoch}: loss {total / len(train_loader):.4f} test f1 {f1(model, test_loader):.3f}")
print(f"final f1: {f1(model, test_loader):.4f}")
