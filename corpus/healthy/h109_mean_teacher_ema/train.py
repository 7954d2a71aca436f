import copy

import torch
import torch.nn as nn

torch.manual_seed(0)


def net():
    return nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))


def moons(n):
    y = torch.randint(0, 2, (n,))
    a = torch.rand(n) * 3.1416
    x = torch.stack([a.cos() + y.float(), a.sin() * (1 - 2 * y.float()) + 0.3 * y.float()], 1)
    return x + 0.1 * torch.randn(n, 2), y


student = net()
teacher = copy.deepcopy(student)
teacher.requires_grad_(False)
xl, yl = moons(40)
opt = torch.optim.Adam(student.parameters(), lr=3e-3)
for step in range(500):
    xu, _ = moons(128)
    sup = nn.functional.cross_entropy(student(xl), yl)
    with torch.no_grad():
        target = teacher(xu + 0.05 * torch.randn_like(xu)).softmax(1)
    cons = (student(xu + 0.05 * torch.randn_like(xu)).softmax(1) - target).pow(2).mean()
    ramp = min(1.0, step / 200)
    loss = sup + 5.0 * ramp * cons
    opt.zero_grad()
    loss.backward()
    opt.step()
    with torch.no_grad():
        for pt, ps in zip(teacher.parameters(), student.parameters()):
            pt.lerp_(ps, 0.02)
    if step % 100 == 99:
        teacher.eval()
        xv, yv = moons(1000)
        acc = (teacher(xv).argmax(1) == yv).float().mean().item()
        teacher.train()
        print(f"step {step} loss {loss.item():.4f} sup {sup.item():.4f} teacher acc {acc:.3f}")
