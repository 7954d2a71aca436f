import torch
import torch.nn as nn

torch.manual_seed(2)


class Adder(nn.Module):
    def __init__(self, d=40):
        super().__init__()
        self.rnn = nn.GRU(2, d, batch_first=True)
        self.out = nn.Linear(d, 1)

    def forward(self, x):
        return 100 * self.out(self.rnn(x)[0][:, -1]).squeeze(-1)


def adding(n=64, t=12):
    v = torch.rand(n, t) * 3
    m = torch.zeros(n, t)
    m[torch.arange(n), torch.randint(0, t // 2, (n,))] = 1
    m[torch.arange(n), torch.randint(t // 2, t, (n,))] = 1
    return torch.stack([v, m], -1), 100 * (v * m).sum(1)


model = Adder()
opt = torch.optim.Adam(model.parameters(), lr=2e-2)
largest = 0.0
for step in range(150):
    x, y = adding()
    loss = (model(x) - y).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
    largest = max(largest, norm.item())
    opt.step()
    if step % 25 == 24:
        print(f"step {step} loss {loss.item():.3f} norm {norm.item():.1f} largest {largest:.1f}")
