import copy

import torch
import torch.nn as nn

torch.manual_seed(0)
student = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 3))
teacher = copy.deepcopy(student)
for p in teacher.parameters():
    p.requires_grad = False
x = torch.randn(1000, 10)
y = x[:, :3].argmax(1)
opt = torch.optim.SGD(student.parameters(), lr=0.1, momentum=0.9)
for step in range(150):
    idx = torch.randint(0, 200, (32,))
    unlabelled = x[torch.randint(0, 1000, (32,))]
    loss = nn.functional.cross_entropy(student(x[idx]), y[idx])
    with torch.no_grad():
        target = teacher(unlabelled + 0.1 * torch.randn(32, 10)).softmax(1)
    consistency = ((student(unlabelled).softmax(1) - target) ** 2).mean()
    opt.zero_grad()
    (loss + consistency).backward()
    opt.step()
    with torch.no_grad():
        for t, s in zip(teacher.parameters(), student.parameters()):
            t.mul_(0.99).add_(s, alpha=0.01)
    if step % 30 == 29:
        print(f"step {step} loss {loss.item():.4f} consistency {consistency.item():.5f}")
