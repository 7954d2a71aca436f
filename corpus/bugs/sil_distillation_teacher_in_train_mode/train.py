# pattern source: vrvlive/knowlege-distillation#2, yxuansu/TaCL#11, neuralmagic/sparseml#2191
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
T = 3.0
centers = torch.randn(8, 16) * 0.8
y = torch.randint(0, 8, (1400,))
x = centers[y] + 0.8 * torch.randn(1400, 16)
xt, yt, xv, yv = x[:1000], y[:1000], x[1000:], y[1000:]


def accuracy(net):
    was = net.training
    net.eval()
    with torch.no_grad():
        acc = (net(xv).argmax(1) == yv).float().mean().item()
    net.train(was)
    return acc


def train_teacher():
    net = nn.Sequential(nn.Linear(16, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Dropout(0.7), nn.Linear(128, 8))
    opt = torch.optim.Adam(net.parameters(), lr=3e-3)
    for _ in range(8):
        for idx in torch.randperm(1000).split(50):
            loss = F.cross_entropy(net(xt[idx]), yt[idx])
            opt.zero_grad()
            loss.backward()
            opt.step()
    return net


teacher = train_teacher()
print(f"teacher acc {accuracy(teacher):.3f}")
for p in teacher.parameters():
    p.requires_grad_(False)
student = nn.Sequential(nn.Linear(16, 24), nn.ReLU(), nn.Linear(24, 8))
opt = torch.optim.Adam(student.parameters(), lr=3e-3)
for epoch in range(10):
    total = 0.0
    for idx in torch.randperm(1000).split(50):
        xb = xt[idx] + 1.5 * torch.randn_like(xt[idx]) + 1.0
        with torch.no_grad():
            soft = F.softmax(teacher(xb) / T, dim=1)
        loss = F.kl_div(F.log_softmax(student(xb) / T, dim=1), soft, reduction="batchmean") * T * T
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item() / 20
    if epoch % 2 == 1:
        print(f"epoch {epoch} loss {total:.4f} student acc {accuracy(student):.3f} teacher acc {accuracy(teacher):.3f}")
