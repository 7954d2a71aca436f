import torch
from torch import nn

torch.manual_seed(0)


class Teacher(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(6, 3)

    def forward(self, x):
        return torch.sigmoid(4 * self.net(x))


def distill(student_logits, probabilities):
    goal = torch.logit(probabilities)
    return nn.functional.mse_loss(student_logits, goal)


teacher = Teacher().requires_grad_(False)
student = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 3))
optimizer = torch.optim.Adam(student.parameters(), lr=5e-3)
for step in range(100):
    x = torch.randn(64, 6) * (1 + step / 10)
    loss = distill(student(x), teacher(x))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(step, loss.item())
