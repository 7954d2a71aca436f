# pattern source: microsoft/ProDA#20, microsoft/ProDA#43, pytorch/pytorch#5282
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


def mlp(width):
    return nn.Sequential(nn.Linear(10, width), nn.ReLU(), nn.Linear(width, 5))


def distillation_loss(student_logits, teacher_logits, T=2.0):
    p_student = F.softmax(student_logits / T, dim=1)
    p_teacher = F.softmax(teacher_logits / T, dim=1)
    return F.kl_div(p_student, p_teacher, reduction="batchmean") * T * T


w = torch.randn(10, 5)
teacher = mlp(128)
opt = torch.optim.Adam(teacher.parameters(), lr=3e-3)
for step in range(200):
    x = torch.randn(128, 10)
    y = torch.multinomial(F.softmax(1.5 * torch.sin(x) @ w, 1), 1).squeeze(1)
    loss = F.cross_entropy(teacher(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(f"teacher loss {loss.item():.4f}")
teacher.eval()

student = mlp(16)
opt = torch.optim.Adam(student.parameters(), lr=5e-3)
for step in range(300):
    x = torch.randn(128, 10)
    with torch.no_grad():
        target = teacher(x)
    loss = distillation_loss(student(x), target)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 60 == 59:
        with torch.no_grad():
            x = torch.randn(1000, 10)
            p, q = F.softmax(teacher(x), 1), F.softmax(student(x), 1)
            gap = (p - q).abs().sum(1).mean().item()
        print(f"step {step} loss {loss.item():.4f} L1 distance to teacher {gap:.4f}")
