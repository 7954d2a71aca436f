import torch
import torch.nn as nn

torch.manual_seed(0)


class Forecaster(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.rnn = nn.RNN(1, hidden, nonlinearity="relu", batch_first=True)
        self.out = nn.Linear(hidden, 1)

    def forward(self, x):
        h, _ = self.rnn(x)
        return self.out(h[:, -1]).squeeze(1)


t = torch.arange(0, 400, 0.25)
wave = torch.sin(t)
windows = wave.unfold(0, 61, 1)
x, y = windows[:, :-1].unsqueeze(-1), windows[:, -1]
model = Forecaster()
nn.init.normal_(model.rnn.weight_hh_l0, std=0.6)
opt = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(60):
    idx = torch.randint(0, len(x), (32,))
    loss = nn.functional.mse_loss(model(x[idx]), y[idx])
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 10 == 9:
        print(f"step {step} loss {loss.item():.4f}")
