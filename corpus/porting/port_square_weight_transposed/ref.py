import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


def samples():
    rng = np.random.default_rng(5)
    x = rng.normal(size=(256, 6, 16)).astype(np.float32)
    y = (x.mean(1) @ rng.normal(size=(16, 5))).argmax(1)
    return x, y


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter = nn.Linear(16, 24)
        self.mix = nn.Linear(24, 24, bias=False)
        self.head = nn.Linear(24, 5)

    def forward(self, x):
        h = torch.tanh(self.enter(x.mean(1)))
        return self.head(torch.relu(self.mix(h)))


torch.manual_seed(1)
model = Model()
opt = torch.optim.Adam(model.parameters(), lr=0.003)
loss_fn = nn.CrossEntropyLoss()
x, y = samples()
for epoch in range(2):
    for i in range(0, 256, 32):
        opt.zero_grad()
        loss = loss_fn(model(torch.from_numpy(x[i : i + 32])), torch.from_numpy(y[i : i + 32]))
        loss.backward()
        opt.step()
    print(epoch, loss.item())
