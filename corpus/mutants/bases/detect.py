"""A one-stage detector: coloured shapes on noisy images, a grid of cells with objectness, box offsets and class scores."""

import random
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


@dataclass
class Config:
    image: int = 48
    grid: int = 6
    classes: int = 3
    batch: int = 32
    epochs: int = 4
    lr: float = 4e-3
    box_weight: float = 5.0
    train_images: int = 416
    test_images: int = 128


cfg = Config()
COLOURS = np.array([[220, 60, 50], [60, 200, 70], [50, 80, 230]])


def draw_scene(rng):
    """An image as uint8 HWC with up to three filled boxes, and their (class, cx, cy, w, h) in pixels."""
    img = rng.integers(0, 60, (cfg.image, cfg.image, 3))
    boxes, used = [], set()
    for _ in range(rng.integers(1, 4)):
        w, h = rng.integers(8, 17, 2)
        cx = rng.uniform(w / 2, cfg.image - w / 2)
        cy = rng.uniform(h / 2, cfg.image - h / 2)
        cell = (int(cy * cfg.grid / cfg.image), int(cx * cfg.grid / cfg.image))
        near = {(cell[0] + i, cell[1] + j) for i in (-1, 0, 1) for j in (-1, 0, 1)}
        if near & used:
            continue
        used.add(cell)
        label = int(rng.integers(cfg.classes))
        x0, y0 = int(cx - w / 2), int(cy - h / 2)
        img[y0 : y0 + h, x0 : x0 + w] = COLOURS[label] + rng.integers(-20, 20, 3)
        boxes.append((label, x0 + w / 2, y0 + h / 2, float(w), float(h)))
    return img.clip(0, 255).astype(np.uint8), boxes


class Scenes(Dataset):
    def __init__(self, n, seed, augment):
        rng = np.random.default_rng(seed)
        self.scenes = [draw_scene(rng) for _ in range(n)]
        self.augment = augment

    def __len__(self):
        return len(self.scenes)

    def __getitem__(self, i):
        img, boxes = self.scenes[i]
        x = torch.from_numpy(img).permute(2, 0, 1).float() / 255
        if self.augment and random.random() < 0.5:
            x = x.flip(-1)
            boxes = [(c, cfg.image - cx, cy, w, h) for c, cx, cy, w, h in boxes]
        return (x - 0.25) / 0.25, encode(boxes)


def encode(boxes):
    """Targets (grid, grid, 6): objectness, offset in the cell, log size, class."""
    stride = cfg.image / cfg.grid
    target = torch.zeros(cfg.grid, cfg.grid, 6)
    for label, cx, cy, w, h in boxes:
        col, row = int(cx / stride), int(cy / stride)
        target[row, col, 0] = 1.0
        target[row, col, 1] = cx / stride - col
        target[row, col, 2] = cy / stride - row
        target[row, col, 3] = np.log(w / stride)
        target[row, col, 4] = np.log(h / stride)
        target[row, col, 5] = label
    return target


class Block(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, 3, stride=2, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(cout)
        self.refine = nn.Conv2d(cout, cout, 3, padding=1)

    def forward(self, x):
        x = F.relu(self.norm(self.conv(x)))
        return x + F.relu(self.refine(x))


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = Block(3, 16)
        self.mid = Block(16, 32)
        self.deep = Block(32, 48)
        self.objectness = nn.Conv2d(48, 1, 1)
        self.box = nn.Conv2d(48, 4, 1)
        self.classes = nn.Conv2d(48, cfg.classes, 1)
        nn.init.constant_(self.objectness.bias, -2.0)

    def forward(self, x):
        h = self.deep(self.mid(self.stem(x)))
        to_last = lambda t: t.permute(0, 2, 3, 1)
        box = to_last(self.box(h))
        box = torch.cat([box[..., :2].sigmoid(), box[..., 2:]], -1)
        return to_last(self.objectness(h)).squeeze(-1), box, to_last(self.classes(h))


def detection_loss(outputs, target):
    obj, box, cls = outputs
    mask = target[..., 0] > 0.5
    obj_loss = F.binary_cross_entropy_with_logits(obj, target[..., 0], pos_weight=torch.tensor(4.0))
    box_loss = F.smooth_l1_loss(box[mask], target[..., 1:5][mask])
    cls_loss = F.cross_entropy(cls[mask], target[..., 5][mask].long())
    return obj_loss + cfg.box_weight * box_loss + cls_loss, (obj_loss.item(), box_loss.item(), cls_loss.item())


def decode(box, rows, cols):
    stride = cfg.image / cfg.grid
    cx = (cols + box[:, 0]) * stride
    cy = (rows + box[:, 1]) * stride
    w, h = box[:, 2].exp() * stride, box[:, 3].exp() * stride
    return torch.stack([cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2], -1)


def iou(a, b):
    lo, hi = torch.maximum(a[:, :2], b[:, :2]), torch.minimum(a[:, 2:], b[:, 2:])
    inter = (hi - lo).clamp(min=0).prod(-1)
    area = lambda r: (r[:, 2:] - r[:, :2]).prod(-1)
    return inter / (area(a) + area(b) - inter)


@torch.no_grad()
def evaluate(model, loader):
    """The share of objects found at their cell, with the right class and IoU over 0.5, less false detections."""
    model.eval()
    hits = objects = false = 0
    for x, target in loader:
        obj, box, cls = model(x)
        found = obj > 0
        mask = target[..., 0] > 0.5
        objects += int(mask.sum())
        false += int((found & ~mask).sum())
        both = found & mask
        _, rows, cols = both.nonzero(as_tuple=True)
        overlap = iou(decode(box[both], rows, cols), decode(target[..., 1:5][both], rows, cols))
        right = cls[both].argmax(-1) == target[..., 5][both].long()
        hits += int(((overlap > 0.5) & right).sum())
    return hits / max(objects + false, 1)


def main():
    torch.manual_seed(0)
    random.seed(0)
    train_loader = DataLoader(Scenes(cfg.train_images, 1, True), cfg.batch, shuffle=True)
    test_loader = DataLoader(Scenes(cfg.test_images, 2, False), cfg.batch)
    model = Detector()
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg.lr)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, cfg.epochs)
    for epoch in range(cfg.epochs):
        model.train()
        totals = np.zeros(3)
        for x, target in train_loader:
            loss, parts = detection_loss(model(x), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            totals += parts
        scheduler.step()
        obj, box, cls = totals / len(train_loader)
        print(f"epoch {epoch} obj {obj:.3f} box {box:.3f} cls {cls:.3f} score {evaluate(model, test_loader):.3f}")
    print(f"final score: {evaluate(model, test_loader):.4f}")


if __name__ == "__main__":
    main()
