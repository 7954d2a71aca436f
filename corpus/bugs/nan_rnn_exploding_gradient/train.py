# pattern source: pytorch/pytorch#309 (RNN fails without clipping), shiningrain/AUTOTRAINER (exploding gradient class)
import torch
import torch.nn as nn

torch.manual_seed(0)
T = 60


class Summer(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.rnn = nn.RNN(2, hidden, nonlinearity="relu", batch_first=True)
        nn.init.eye_(self.rnn.weight_hh_l0)
        self.fc = nn.Linear(hidden, 1)

    def forward(self, x):
        out, _ = self.rnn(x)
        return self.fc(out[:, -1]).squeeze(-1)


def make_batch(n):
    value = torch.rand(n, T)
    mark = torch.zeros(n, T)
    i = torch.randint(0, T // 2, (n,))
    j = torch.randint(T // 2, T, (n,))
    mark[torch.arange(n), i] = 1
    mark[torch.arange(n), j] = 1
    return torch.stack([value, mark], 2), (value * mark).sum(1)


model = Summer()
opt = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
for step in range(150):
    x, y = make_batch(32)
    loss = nn.functional.mse_loss(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step < 10 or step % 15 == 14:
        print(f"step {step} loss {loss.item():.4f}")
