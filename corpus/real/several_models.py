"""Several models and optimizers in one main(): a frozen teacher, a student, an LBFGS fit and checkpointing."""

import torch
from fingerprint import report
from torch import nn
from torch.utils.checkpoint import checkpoint


def mlp(*sizes):
    layers = []
    for a, b in zip(sizes, sizes[1:]):
        layers += [nn.Linear(a, b), nn.GELU()]
    return nn.Sequential(*layers[:-1])


class Student(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp, self.body, self.head = nn.Linear(8, 32), mlp(32, 32, 32), nn.Linear(32, 5)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return self.head(checkpoint(self.body, self.inp(x).relu(), use_reentrant=False))


def main():
    torch.manual_seed(3)
    teacher, student, curve = mlp(8, 64, 5), Student(), nn.Linear(3, 1)
    x = torch.randn(512, 8)
    y = (x @ torch.randn(8, 5)).argmax(1)
    first = torch.optim.Adam(teacher.parameters(), lr=0.01)
    for _ in range(60):
        loss = nn.functional.cross_entropy(teacher(x), y)
        first.zero_grad()
        loss.backward()
        first.step()
    print(f"teacher {loss.item():.6f}")
    teacher.eval().requires_grad_(False)
    second = torch.optim.RMSprop(student.parameters(), lr=1e-3)
    for _ in range(80):
        chosen = torch.randint(0, 512, (64,))
        with torch.no_grad():
            goal = teacher(x[chosen]).softmax(-1)
        loss = nn.functional.kl_div(student(x[chosen]).log_softmax(-1), goal, reduction="batchmean")
        second.zero_grad()
        loss.backward()
        second.step()
    print(f"student {loss.item():.6f} {student.calls}")
    points = torch.linspace(-1, 1, 50)[:, None] ** torch.arange(3)
    third = torch.optim.LBFGS(curve.parameters(), line_search_fn="strong_wolfe", max_iter=10)

    def closure():
        third.zero_grad()
        error = nn.functional.mse_loss(curve(points), points[:, 2:] * 2 - points[:, 1:2])
        error.backward()
        return error

    for _ in range(4):
        loss = third.step(closure)
    print(f"curve {loss.item():.8f}")
    report(teacher, student, curve, first, second)


main()
