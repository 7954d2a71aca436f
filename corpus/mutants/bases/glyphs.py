"""Glyph recognition from numpy arrays: a Dataset with crops and shifts, a residual network, cosine schedule, evaluation after each epoch."""
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

CLASSES = 6


def make_images(rng, n):
    """Strokes on 14x14 grey images, 0 to 255, with noise; the label is the kind of glyph."""
    images = np.zeros((n, 14, 14), dtype=np.float32)
    labels = rng.integers(0, CLASSES, n)
    for k in range(n):
        image, r, c = images[k], rng.integers(3, 6), rng.integers(3, 6)
        bright = rng.uniform(90, 200)
        if labels[k] == 0:  # L
            image[r:r + 6, c] = image[r + 5, c:c + 5] = bright
        elif labels[k] == 1:  # T
            image[r, c:c + 5] = image[r:r + 6, c + 2] = bright
        elif labels[k] == 2:  # box
            image[r:r + 6, c] = image[r:r + 6, c + 4] = image[r, c:c + 5] = image[r + 5, c:c + 5] = bright
        elif labels[k] == 3:  # U
            image[r:r + 6, c] = image[r:r + 6, c + 4] = image[r + 5, c:c + 5] = bright
        elif labels[k] == 4:  # F
            image[r:r + 6, c] = image[r, c:c + 5] = image[r + 2, c:c + 4] = bright
        else:  # J
            image[r:r + 6, c + 4] = image[r + 5, c:c + 5] = bright
    images += rng.normal(40, 25, images.shape)
    return np.clip(images, 0, 255).astype(np.uint8), labels.astype(np.int64)


class Glyphs(Dataset):
    def __init__(self, images, labels, mean, std, augment=False):
        self.images = images
        self.labels = labels
        self.mean, self.std = mean, std
        self.augment = augment

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image = torch.from_numpy(self.images[index]).float() / 255.0
        image = (image - self.mean) / self.std
        image = image.unsqueeze(0)
        if self.augment:
            dy, dx = torch.randint(-1, 2, (2,)).tolist()
            image = torch.roll(image, (dy, dx), dims=(1, 2))
            image = image + 0.1 * torch.randn_like(image)
        return image, int(self.labels[index])


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)

    def forward(self, x):
        out = torch.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        return torch.relu(out + x)


class GlyphNet(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        self.block1 = Block(width)
        self.pool = nn.MaxPool2d(2)
        self.block2 = Block(width)
        self.drop = nn.Dropout(0.2)
        self.fc = nn.Linear(width * 7 * 7, CLASSES)

    def forward(self, x):
        x = self.block1(self.stem(x))
        x = self.block2(self.pool(x))
        return self.fc(self.drop(x.flatten(1)))


def train_epoch(model, loader, criterion, optimizer):
    model.train()
    running = 0.0
    for images, labels in loader:
        optimizer.zero_grad()
        outputs = model(images)
        loss = criterion(outputs, labels)
        loss.backward()
        optimizer.step()
        running += loss.item() * len(images)
    return running / len(loader.dataset)


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    correct = total = 0
    for images, labels in loader:
        predicted = model(images).argmax(dim=1)
        correct += (predicted == labels).sum().item()
        total += labels.size(0)
    return correct / total


def main():
    torch.manual_seed(3)
    rng = np.random.default_rng(3)
    images, labels = make_images(rng, 1200)
    train_x, test_x = images[:900], images[900:]
    train_y, test_y = labels[:900], labels[900:]
    mean = float(train_x.mean() / 255.0)
    std = float(train_x.std() / 255.0)
    train_set = Glyphs(train_x, train_y, mean, std, augment=True)
    test_set = Glyphs(test_x, test_y, mean, std)
    train_loader = DataLoader(train_set, batch_size=32, shuffle=True)
    test_loader = DataLoader(test_set, batch_size=100)
    model = GlyphNet()
    criterion = nn.CrossEntropyLoss()
    epochs = 6
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=epochs)
    best = 0.0
    for epoch in range(epochs):
        loss = train_epoch(model, train_loader, criterion, optimizer)
        scheduler.step()
        accuracy = evaluate(model, test_loader)
        best = max(best, accuracy)
        print(f"epoch {epoch + 1}: loss {loss:.3f}, test accuracy {accuracy:.3f}, best {best:.3f}")
    print(f"final accuracy: {evaluate(model, test_loader):.4f}")


if __name__ == "__main__":
    main()
