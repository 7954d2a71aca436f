import copy

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)


class Student(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(16, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 32))
        self.predictor = nn.Sequential(nn.Linear(32, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 32))

    def forward(self, x):
        return self.predictor(self.encoder(x))


student = Student()
teacher = copy.deepcopy(student.encoder).requires_grad_(False)
optimizer = torch.optim.Adam(student.parameters(), lr=1e-3)
data = torch.randn(10, 16)[torch.randint(0, 10, (640,))] + 0.3 * torch.randn(640, 16)
for step in range(150):
    xb = data[torch.randint(0, 640, (64,))]
    a, b = xb + 0.2 * torch.randn_like(xb), xb + 0.2 * torch.randn_like(xb)
    with torch.no_grad():
        ta, tb = teacher(a), teacher(b)
    loss = 2 - F.cosine_similarity(student(a), tb).mean() - F.cosine_similarity(student(b), ta).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for old, new in zip(teacher.parameters(), student.encoder.parameters(), strict=True):
            old.lerp_(new, 0.01)
    if step % 30 == 0:
        print(step, loss.item())
