import torch
import torch.nn as nn
from torch.func import functional_call

torch.manual_seed(0)
main_net = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))
shapes = {name: p.shape for name, p in main_net.named_parameters()}
sizes = [s.numel() for s in shapes.values()]


class HyperNet(nn.Module):
    """writes the weights of main_net from a task description"""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.head = nn.Linear(64, sum(sizes))

    def forward(self, task):
        chunks = self.head(self.body(task)).split(sizes)
        return {name: c.view(shape) for c, (name, shape) in zip(chunks, shapes.items())}


hyper = HyperNet()
opt = torch.optim.Adam(hyper.parameters(), lr=2e-3)
history = []
for step in range(500):
    loss = 0.0
    for _ in range(4):
        amp, phase = 0.5 + torch.rand(()), 3 * torch.rand(())
        x = 4 * torch.rand(32, 1) - 2
        target = amp * torch.sin(2 * x + phase)
        weights = hyper(torch.stack([amp, phase]))
        loss = loss + nn.functional.mse_loss(functional_call(main_net, weights, (x,)), target) / 4
    opt.zero_grad()
    loss.backward()
    opt.step()
    history.append(loss.item())
    if step % 100 == 99:
        print(f"step {step} loss {sum(history[-50:]) / 50:.4f}")
