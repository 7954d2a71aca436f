"""Images and their captions in one space: two towers, trained with a symmetric contrastive loss, judged by retrieval."""
import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

WORDS = ["<pad>", "a", "red", "green", "blue", "yellow", "square", "cross", "bar", "ring", "left", "right", "top", "bottom",
         "small", "large", "at", "the", "on"]
ID = {word: number for number, word in enumerate(WORDS)}
COLOURS = {"red": (1, 0.1, 0.1), "green": (0.1, 1, 0.1), "blue": (0.1, 0.1, 1), "yellow": (1, 1, 0.1)}
SHAPES = ["square", "cross", "bar", "ring"]
SIDE = 20


def draw(rng):
    colour, shape = rng.choice(list(COLOURS)), rng.choice(SHAPES)
    size = rng.choice(["small", "large"])
    across, along = rng.choice(["left", "right"]), rng.choice(["top", "bottom"])
    r = 2 if size == "small" else 4
    cx = (5 if across == "left" else 14) + rng.integers(-1, 2)
    cy = (5 if along == "top" else 14) + rng.integers(-1, 2)
    y, x = np.mgrid[0:SIDE, 0:SIDE]
    dy, dx = np.abs(y - cy), np.abs(x - cx)
    inside = {
        "square": (dy <= r) & (dx <= r),
        "cross": ((dy <= r) & (dx <= r // 2)) | ((dx <= r) & (dy <= r // 2)),
        "bar": (dy <= r) & (dx <= max(1, r // 3)),
        "ring": (np.maximum(dy, dx) <= r) & (np.maximum(dy, dx) >= r - 1),
    }[shape]
    image = rng.normal(0.3, 0.08, (3, SIDE, SIDE))
    for channel, value in enumerate(COLOURS[colour]):
        image[channel][inside] = value
    if rng.random() < 0.5:
        caption = f"a {size} {colour} {shape} at the {along} {across}"
    else:
        caption = f"a {colour} {shape} {size} on the {across}  {along}"
    return image.astype(np.float32), caption.split()


class Pictures(Dataset):
    def __init__(self, count, seed):
        rng = np.random.default_rng(seed)
        items = [draw(rng) for _ in range(count)]
        self.images = torch.from_numpy(np.stack([image for image, _ in items]))
        self.captions = [caption for _, caption in items]

    def __len__(self):
        return len(self.captions)

    def __getitem__(self, index):
        return self.images[index] * 2 - 1, torch.tensor([ID[word] for word in self.captions[index]])


def collate(items):
    images = torch.stack([image for image, _ in items])
    tokens = nn.utils.rnn.pad_sequence([tokens for _, tokens in items], batch_first=True)
    return images, tokens


class ImageTower(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(24, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        )
        self.project = nn.Linear(32 * 25, dim)

    def forward(self, images):
        return self.project(self.features(images).flatten(1))


class TextTower(nn.Module):
    def __init__(self, dim, width=48):
        super().__init__()
        self.embed = nn.Embedding(len(WORDS), width, padding_idx=0)
        self.rnn = nn.GRU(width, width, batch_first=True, bidirectional=True)
        self.project = nn.Linear(2 * width, dim)

    def forward(self, tokens):
        hidden, _ = self.rnn(self.embed(tokens))
        present = (tokens != 0).unsqueeze(-1)
        pooled = (hidden * present).sum(dim=1) / present.sum(dim=1)
        return self.project(pooled)


class Matcher(nn.Module):
    def __init__(self, dim=48):
        super().__init__()
        self.image = ImageTower(dim)
        self.text = TextTower(dim)
        self.scale = nn.Parameter(torch.tensor(math.log(1 / 0.1)))

    def forward(self, images, tokens):
        image = F.normalize(self.image(images), dim=-1)
        text = F.normalize(self.text(tokens), dim=-1)
        return image, text, self.scale.exp()


def contrastive(image, text, scale):
    scores = scale * image @ text.T
    labels = torch.arange(len(scores))
    return 0.5 * (F.cross_entropy(scores, labels) + F.cross_entropy(scores.T, labels))


@torch.no_grad()
def recall(model, loader):
    """How often the caption of an image is the nearest of its batch (captions that say the same count)."""
    model.eval()
    hits = total = 0
    for images, tokens in loader:
        image, text, _ = model(images, tokens)
        best = (image @ text.T).argmax(dim=1)
        same = tokens[best].sort(dim=1).values == tokens.sort(dim=1).values
        hits += same.all(dim=1).sum().item()
        total += len(images)
    return hits / total


def main(epochs=6, batch=48, lr=2e-3):
    torch.manual_seed(11)
    train = DataLoader(Pictures(1920, 0), batch_size=batch, shuffle=True, collate_fn=collate, drop_last=True)
    test = DataLoader(Pictures(320, 1), batch_size=32, collate_fn=collate)
    model = Matcher()
    decayed = [p for p in model.parameters() if p.ndim > 1]
    plain = [p for p in model.parameters() if p.ndim <= 1]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.02}, {"params": plain, "weight_decay": 0.0}], lr=lr)
    for epoch in range(epochs):
        model.train()
        losses = []
        for images, tokens in train:
            image, text, scale = model(images, tokens)
            loss = contrastive(image, text, scale)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                model.scale.clamp_(0.0, math.log(100.0))
            losses.append(loss.item())
        print(f"epoch {epoch} loss {np.mean(losses):.4f} recall {recall(model, test):.4f}")
    return recall(model, test)


if __name__ == "__main__":
    print(f"final recall: {main():.4f}")
