import torch
import torch.nn as nn

torch.manual_seed(0)


def kl(p, q):
    return torch.nn.functional.kl_div(q.log(), p, reduction="batchmean")


class Student(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 5))

    def forward(self, x):
        return torch.softmax(self.net(x), 1)


x = torch.randn(500, 10)
soft = torch.softmax(torch.randn(500, 5) * 3, 1)
soft[soft < 0.01] = 0.0
soft = soft / soft.sum(1, keepdim=True)
student = Student()
opt = torch.optim.Adam(student.parameters(), lr=3e-3)
for step in range(60):
    idx = torch.randint(0, 500, (50,))
    loss = kl(soft[idx], student(x[idx]))
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 15 == 14:
        print(f"step {step} loss {loss.item():.4f}")
