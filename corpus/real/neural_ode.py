"""A neural ODE of torchdiffeq, by the adjoint method: thousands of small module calls per step."""

# needs: torchdiffeq
import torch
from fingerprint import report
from torch import nn
from torchdiffeq import odeint_adjoint as odeint

torch.manual_seed(0)
torch.set_num_threads(1)
matrix = torch.tensor([[-0.1, 2.0], [-2.0, -0.1]])
start, t = torch.tensor([[2.0, 0.0]]), torch.linspace(0, 4, 40)


class Spiral(nn.Module):
    def forward(self, t, y):
        return (y**3) @ matrix


class Field(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 24), nn.Tanh(), nn.Linear(24, 2))
        for m in self.net.modules():
            if isinstance(m, nn.Linear):
                nn.init.normal_(m.weight, 0, 0.1)
                nn.init.zeros_(m.bias)

    def forward(self, t, y):
        return self.net(y**3)


with torch.no_grad():
    truth = odeint(Spiral(), start, t, method="dopri5")
field = Field()
optimizer = torch.optim.RMSprop(field.parameters(), lr=2e-3)
for step in range(40):
    at = torch.randint(0, 30, (8,))
    optimizer.zero_grad()
    predicted = odeint(field, truth[at], t[:8])
    goal = torch.stack([truth[at + k] for k in range(8)])
    loss = (predicted - goal).abs().mean()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(step, f"{loss.item():.6f}")
report(field, optimizer)
