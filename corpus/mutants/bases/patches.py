"""A small vision transformer on coloured signs: patches, position embeddings, augmentation, warm-up and cosine."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

SIDE, PATCH, CLASSES = 16, 4, 6


def draw_signs(n, seed):
    """A sign of one of six shapes in a random colour on a noisy background, 0 to 255."""
    g = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, CLASSES, (n,), generator=g)
    images = 60 + 25 * torch.randn(n, SIDE, SIDE, 3, generator=g)
    colours = 120 + 100 * torch.rand(n, 3, generator=g)
    corners = torch.randint(2, 6, (n, 2), generator=g).tolist()
    for k, (label, (r, c)) in enumerate(zip(labels.tolist(), corners)):
        mask = torch.zeros(8, 8)
        if label == 0:
            mask[3:5, :] = 1
        elif label == 1:
            mask[:, 3:5] = 1
        elif label == 2:
            mask[:2, :] = mask[6:, :] = 1
        elif label == 3:
            mask[:, :2] = mask[:, 6:] = 1
        elif label == 4:
            mask[2:6, 2:6] = 1
        else:
            mask[3:5, :] = mask[:, 3:5] = 1
        images[k, r:r + 8, c:c + 8] += mask[:, :, None] * colours[k]
    return images.clamp(0, 255).to(torch.uint8), labels


class Signs(Dataset):
    def __init__(self, images, labels, mean, std, train):
        self.images, self.labels = images, labels
        self.mean, self.std, self.train = mean, std, train

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, k):
        image = self.images[k].float() / 255
        image = ((image - self.mean) / self.std).permute(2, 0, 1)
        if self.train:
            dy, dx = torch.randint(-1, 2, (2,)).tolist()
            image = torch.roll(image, (dy, dx), dims=(1, 2))
        return image, self.labels[k]


class Block(nn.Module):
    def __init__(self, dim, heads, p):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Dropout(p), nn.Linear(2 * dim, dim))

    def attend(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(x).reshape(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        weights = (q @ k.transpose(-2, -1) / math.sqrt(d // self.heads)).softmax(dim=-1)
        return self.proj((weights @ v).transpose(1, 2).reshape(b, t, d))

    def forward(self, x):
        x = x + self.attend(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    def __init__(self, dim=32, depth=2, heads=4, p=0.1):
        super().__init__()
        tokens = (SIDE // PATCH) ** 2
        self.embed = nn.Linear(3 * PATCH * PATCH, dim)
        self.cls = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos = nn.Parameter(0.02 * torch.randn(1, tokens + 1, dim))
        self.blocks = nn.ModuleList([Block(dim, heads, p) for _ in range(depth)])
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, CLASSES)

    def forward(self, images):
        b = images.shape[0]
        patches = F.unfold(images, PATCH, stride=PATCH).transpose(1, 2)
        x = self.embed(patches)
        x = torch.cat([self.cls.expand(b, -1, -1), x], dim=1) + self.pos
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x[:, 0]))


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    right = total = 0
    for images, labels in loader:
        right += (model(images).argmax(dim=1) == labels).sum().item()
        total += len(labels)
    return right / total


def main(epochs=8, batch=64, lr=3e-3, warmup=20, decay=0.01):
    torch.manual_seed(5)
    images, labels = draw_signs(2000, seed=5)
    train_x, test_x = images[:1600], images[1600:]
    train_y, test_y = labels[:1600], labels[1600:]
    mean = train_x.float().div(255).mean(dim=(0, 1, 2))
    std = train_x.float().div(255).std(dim=(0, 1, 2))
    train = DataLoader(Signs(train_x, train_y, mean, std, train=True), batch_size=batch, shuffle=True)
    test = DataLoader(Signs(test_x, test_y, mean, std, train=False), batch_size=200)
    model = ViT()
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=decay)
    steps = epochs * len(train)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda s: min((s + 1) / warmup, 0.5 * (1 + math.cos(math.pi * s / steps))))
    for epoch in range(epochs):
        model.train()
        running = 0.0
        for images, labels in train:
            logits = model(images)
            loss = F.cross_entropy(logits, labels, label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            running += loss.item()
        print(f"epoch {epoch} loss {running / len(train):.4f} test {accuracy(model, test):.4f}")
    return accuracy(model, test)


if __name__ == "__main__":
    print(f"final test_acc: {main():.4f}")
