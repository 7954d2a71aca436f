import copy
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(16, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 16))

    def forward(self, x):
        return self.net(x)


student = Encoder()
teacher = copy.deepcopy(student)
for p in teacher.parameters():
    p.requires_grad_(False)
predictor = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16))
opt = torch.optim.AdamW([*student.parameters(), *predictor.parameters()], lr=2e-3)

centers = 1.5 * torch.randn(6, 16)
y = torch.randint(0, 6, (768,))
data = centers[y] + 0.4 * torch.randn(768, 16)


def augment(x):
    return x + 0.3 * torch.randn_like(x)


def byol(p, z):
    return 2 - 2 * F.cosine_similarity(p, z.detach(), dim=-1).mean()


for epoch in range(8):
    total = 0.0
    for idx in torch.randperm(768).split(64):
        a, b = augment(data[idx]), augment(data[idx])
        with torch.no_grad():
            ta, tb = teacher(a), teacher(b)
        loss = byol(predictor(student(a)), tb) + byol(predictor(student(b)), ta)
        opt.zero_grad()
        loss.backward()
        opt.step()
        with torch.no_grad():
            for pt, ps in zip(teacher.parameters(), student.parameters()):
                pt.lerp_(ps, 0.01)
        total += loss.item() / 12
    student.eval()
    with torch.no_grad():
        z = F.normalize(student(data), dim=1)
        sim = z @ z.t() - 2 * torch.eye(768)
        knn = (y[sim.argmax(1)] == y).float().mean().item()
    student.train()
    print(f"epoch {epoch} loss {total:.4f} knn {knn:.3f} std {z.std(0).mean().item():.3f}")
