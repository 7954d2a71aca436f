import copy
import torch
import torch.nn as nn

torch.manual_seed(0)
student = nn.Sequential(nn.Linear(12, 48), nn.ReLU(), nn.Linear(48, 4))
teacher = student
x = torch.randn(800, 12)
y = x[:, :4].argmax(1)
opt = torch.optim.Adam(student.parameters(), lr=3e-3)


@torch.no_grad()
def update_teacher(decay=0.95):
    for t, s in zip(teacher.parameters(), student.parameters()):
        t.mul_(decay).add_(s, alpha=1 - decay)


for step in range(100):
    i = torch.randint(0, 800, (32,))
    labelled, free = i[:8], i[8:]
    logits = student(x[free] + 0.2 * torch.randn(24, 12))
    with torch.no_grad():
        soft = teacher(x[free]).softmax(1)
    loss = nn.functional.cross_entropy(student(x[labelled]), y[labelled])
    loss = loss + 0.5 * (logits.softmax(1) - soft).pow(2).sum(1).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    update_teacher()
    if step % 20 == 19:
        print(f"step {step} loss {loss.item():.4f}")
