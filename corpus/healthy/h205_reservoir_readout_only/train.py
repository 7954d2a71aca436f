import torch
import torch.nn as nn

torch.manual_seed(0)


class EchoState(nn.Module):
    """fixed random recurrent reservoir, trained linear readout"""

    def __init__(self, n_in=1, size=120, radius=0.9):
        super().__init__()
        w = torch.randn(size, size) * (torch.rand(size, size) < 0.1)
        w *= radius / torch.linalg.eigvals(w).abs().max()
        self.register_buffer("w", w)
        self.w_in = nn.Linear(n_in, size, bias=False)
        self.w_in.weight.requires_grad_(False)
        self.readout = nn.Linear(size, 1)

    @torch.no_grad()
    def states(self, u):
        h, out = torch.zeros(u.size(0), self.w.size(0)), []
        for t in range(u.size(1)):
            h = torch.tanh(self.w_in(u[:, t]) + h @ self.w.T)
            out.append(h)
        return torch.stack(out, 1)

    def forward(self, u):
        return self.readout(self.states(u))


def signal(n, t=60):
    phase, freq = 6.28 * torch.rand(n, 1), 0.2 + 0.3 * torch.rand(n, 1)
    s = torch.sin(phase + freq * torch.arange(t + 1)) * torch.cos(0.5 * phase + 0.11 * torch.arange(t + 1))
    return s[:, :-1, None], s[:, 1:, None]


model = EchoState()
opt = torch.optim.Adam(model.readout.parameters(), lr=1e-2)
for step in range(150):
    u, target = signal(16)
    loss = nn.functional.mse_loss(model(u)[:, 10:], target[:, 10:])
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 30 == 29:
        print(f"step {step} loss {loss.item():.5f}")
