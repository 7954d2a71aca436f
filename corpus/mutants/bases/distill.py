"""Knowledge distillation: a teacher is trained on images of blobs, a small student learns from its soft answers and few labels."""

import copy
import math
from types import SimpleNamespace

import torch
import torch.nn as nn
import torch.nn.functional as F

opts = SimpleNamespace(size=16, classes=6, teacher_epochs=6, student_epochs=8, batch=64, lr=3e-3, temperature=3.0, alpha=0.8)


def make_images(n, seed):
    """The class is the place of a bright blob on a ring; RGB channels carry it with different strengths."""
    gen = torch.Generator().manual_seed(seed)
    y = torch.randint(opts.classes, (n,), generator=gen)
    angle = 2 * math.pi * y / opts.classes + 0.35 * torch.randn(n, generator=gen)
    c = opts.size / 2
    cx, cy = c + 4.5 * torch.cos(angle), c + 4.5 * torch.sin(angle)
    grid = torch.arange(opts.size).float()
    d2 = (grid[None, None, :] - cx[:, None, None]) ** 2 + (grid[None, :, None] - cy[:, None, None]) ** 2
    blob = torch.exp(-d2 / 6)
    images = torch.stack([blob * 200, blob * 90, 40 * torch.ones_like(blob)], 1)
    images = images + 25 * torch.randn(images.shape, generator=gen)
    return images.clamp(0, 255).byte(), y


def to_input(images, mean, std):
    return (images.float() - mean) / std


def augment(x):
    """Small shifts only: the place of the blob is the class."""
    dx, dy = torch.randint(-1, 2, (2,)).tolist()
    return torch.roll(x, (dy, dx), dims=(2, 3))


class Teacher(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 24, 3, stride=2, padding=1),
            nn.BatchNorm2d(24),
            nn.ReLU(),
            nn.Conv2d(24, 48, 3, stride=2, padding=1),
            nn.BatchNorm2d(48),
            nn.ReLU(),
        )
        self.head = nn.Linear(48 * (opts.size // 4) ** 2, opts.classes)

    def forward(self, x):
        return self.head(self.features(x).flatten(1))


class Student(nn.Module):
    def __init__(self, width=6):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 5, stride=4, padding=2)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1)
        self.drop = nn.Dropout(0.05)
        self.fc = nn.Linear(width * (opts.size // 4) ** 2, opts.classes)

    def forward(self, x):
        h = F.relu(self.conv1(x))
        h = h + F.relu(self.conv2(h))
        return self.fc(self.drop(h.flatten(1)))


def batches(x, y, size, gen):
    order = torch.randperm(len(x), generator=gen)
    for k in range(0, len(x) - size + 1, size):
        rows = order[k : k + size]
        yield x[rows], y[rows]


def distillation_loss(student_logits, teacher_logits, y):
    t = opts.temperature
    soft = F.kl_div(
        F.log_softmax(student_logits / t, dim=1),
        F.softmax(teacher_logits / t, dim=1),
        reduction="batchmean",
    )
    hard = F.cross_entropy(student_logits, y)
    return opts.alpha * t * t * soft + (1 - opts.alpha) * hard


@torch.no_grad()
def accuracy(model, x, y):
    model.eval()
    return (model(x).argmax(1) == y).float().mean().item()


def train_teacher(x, y, gen):
    teacher = Teacher()
    optimizer = torch.optim.Adam(teacher.parameters(), lr=opts.lr)
    for epoch in range(opts.teacher_epochs):
        teacher.train()
        for xb, yb in batches(x, y, opts.batch, gen):
            optimizer.zero_grad(set_to_none=True)
            loss = F.cross_entropy(teacher(augment(xb)), yb)
            loss.backward()
            optimizer.step()
    return teacher


def train_student(teacher, x, y, x_test, y_test, gen):
    student = Student()
    best, best_state = 0.0, copy.deepcopy(student.state_dict())
    for p in teacher.parameters():
        p.requires_grad_(False)
    teacher.eval()
    optimizer = torch.optim.AdamW(student.parameters(), lr=opts.lr, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, opts.student_epochs)
    for epoch in range(opts.student_epochs):
        student.train()
        total = count = 0
        for xb, yb in batches(x, y, opts.batch, gen):
            xb = augment(xb)
            with torch.no_grad():
                answers = teacher(xb)
            loss = distillation_loss(student(xb), answers, yb)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            total, count = total + loss.item(), count + 1
        schedule.step()
        acc = accuracy(student, x_test, y_test)
        if acc > best:
            best, best_state = acc, copy.deepcopy(student.state_dict())
        print(f"epoch {epoch} loss {total / count:.4f} student {acc:.3f}")
    student.load_state_dict(best_state)
    return student


def main():
    torch.manual_seed(8)
    gen = torch.Generator().manual_seed(8)
    images, y = make_images(1600, seed=1)
    test_images, y_test = make_images(400, seed=2)
    mean = images.float().mean(dim=(0, 2, 3), keepdim=True)
    std = images.float().std(dim=(0, 2, 3), keepdim=True)
    x, x_test = to_input(images, mean, std), to_input(test_images, mean, std)
    teacher = train_teacher(x, y, gen)
    print(f"teacher {accuracy(teacher, x_test, y_test):.3f}")
    student = train_student(teacher, x, y, x_test, y_test, gen)
    print(f"final accuracy: {accuracy(student, x_test, y_test):.4f}")


if __name__ == "__main__":
    main()
