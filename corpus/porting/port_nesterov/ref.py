import numpy as np
import torch
from torch import nn


def walks():
    rng = np.random.default_rng(8)
    steps = rng.normal(size=(192, 10, 3)).astype(np.float32)
    return steps, (steps.sum(1)[:, :1] > 0).astype(np.float32)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(3, 12, batch_first=True)
        self.head = nn.Linear(12, 1)

    def forward(self, x):
        out, _ = self.rnn(x)
        return self.head(out[:, -1])


torch.manual_seed(3)
net = Recurrent()
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, nesterov=True)
loss_fn = nn.BCEWithLogitsLoss()
net.train()
steps, labels = walks()
for epoch in range(3):
    for begin in range(0, 192, 32):
        optimizer.zero_grad()
        loss = loss_fn(net(torch.from_numpy(steps[begin : begin + 32])), torch.from_numpy(labels[begin : begin + 32]))
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
