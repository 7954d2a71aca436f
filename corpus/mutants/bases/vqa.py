"""Questions about small pictures: a CNN looks, a GRU reads, a classifier answers."""

import random

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIZE, EPOCHS, BATCH, LR = 16, 11, 32, 4e-3
COLOURS = {"red": (220, 40, 40), "green": (40, 200, 60), "blue": (50, 60, 220)}
SHAPES = ["square", "cross", "frame"]
PAD, UNKNOWN = "<pad>", "<unk>"

random.seed(29)
np.random.seed(29)
torch.manual_seed(29)


def draw(image, shape, colour, top, left):
    patch = image[top : top + 5, left : left + 5]
    if shape == "square":
        patch[:] = colour
    elif shape == "cross":
        patch[2, :] = colour
        patch[:, 2] = colour
    else:
        patch[[0, -1], :] = colour
        patch[:, [0, -1]] = colour


def make_sample():
    """One thing on the left half, another on the right half."""
    image = np.random.randint(0, 50, (SIZE, SIZE, 3)).astype(np.uint8)
    colours = random.sample(list(COLOURS), 2)
    shapes = random.sample(SHAPES, 2)
    for k in range(2):
        draw(image, shapes[k], COLOURS[colours[k]], random.randint(0, SIZE - 5), 8 * k + random.randint(0, 3))
    k = random.randrange(2)
    kind = random.randrange(3)
    if kind == 0:
        return image, f"what colour is the {shapes[k]}", colours[k]
    if kind == 1:
        return image, f"on which side is the {colours[k]} thing please", ["left", "right"][k]
    return image, f"which shape is {colours[k]}", shapes[k]


train_samples = [make_sample() for _ in range(1400)]
test_samples = [make_sample() for _ in range(400)]
words = sorted({word for _, question, _ in train_samples for word in question.split()})
vocabulary = {word: k for k, word in enumerate([PAD, UNKNOWN, *words])}
answers = {answer: k for k, answer in enumerate(sorted({answer for _, _, answer in train_samples}))}
pixels = np.stack([image for image, _, _ in train_samples]) / 255.0
MEAN, STD = pixels.mean((0, 1, 2)), pixels.std((0, 1, 2))


class Questions(Dataset):
    def __init__(self, samples, augment):
        self.samples, self.augment = samples, augment

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        image, question, answer = self.samples[index]
        image = image.astype(np.float32)
        if self.augment:
            image = np.clip(image * np.random.uniform(0.8, 1.2), 0, 255)
        image = (image / 255.0 - MEAN) / STD
        if self.augment and random.random() < 0.5:
            image = image[::-1]
        tokens = [vocabulary.get(word, vocabulary[UNKNOWN]) for word in question.split()]
        return torch.tensor(image.copy(), dtype=torch.float32).permute(2, 0, 1), tokens, answers[answer]


def collate(samples):
    images = torch.stack([image for image, _, _ in samples])
    lengths = torch.tensor([len(tokens) for _, tokens, _ in samples])
    questions = torch.zeros(len(samples), int(lengths.max()), dtype=torch.long)
    for row, (_, tokens, _) in enumerate(samples):
        questions[row, : len(tokens)] = torch.tensor(tokens)
    targets = torch.tensor([answer for _, _, answer in samples])
    return images, questions, lengths, targets


class Answerer(nn.Module):
    def __init__(self, words, answers, width=24, dim=32):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, padding=1)
        self.conv2 = nn.Conv2d(width, 2 * width, 3, padding=1)
        self.see = nn.Linear(2 * width * 16, 64)
        self.embed = nn.Embedding(words, dim, padding_idx=0)
        self.read = nn.GRU(dim, 64, batch_first=True)
        self.hidden = nn.Linear(128, 96)
        self.answer = nn.Linear(96, answers)

    def look(self, images):
        x = F.max_pool2d(F.relu(self.conv1(images)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.see(x.flatten(1))

    def forward(self, images, questions, lengths):
        seen = self.look(images)
        states, _ = self.read(self.embed(questions))
        asked = states[torch.arange(len(questions)), lengths - 1]
        joined = torch.cat([seen * asked, asked], 1)
        return self.answer(F.relu(self.hidden(joined)))


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    right = 0
    for images, questions, lengths, targets in loader:
        right += (model(images, questions, lengths).argmax(1) == targets).sum().item()
    model.train()
    return right / len(loader.dataset)


train_loader = DataLoader(Questions(train_samples, True), BATCH, shuffle=True, collate_fn=collate)
test_loader = DataLoader(Questions(test_samples, False), 100, collate_fn=collate)
model = Answerer(len(vocabulary), len(answers))
optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=1e-3)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LR, total_steps=EPOCHS * len(train_loader))
for epoch in range(EPOCHS):
    for images, questions, lengths, targets in train_loader:
        scores = model(images, questions, lengths)
        loss = F.cross_entropy(scores, targets)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        schedule.step()
    if epoch % 3 == 2:
        print(f"epoch {epoch}: loss {loss.item():.4f} test {accuracy(model, test_loader):.3f}")
print(f"final accuracy: {accuracy(model, test_loader):.4f}")
