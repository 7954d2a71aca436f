import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


def samples():
    rng = np.random.default_rng(5)
    x = rng.normal(size=(256, 6, 16)).astype(np.float32)
    y = (x.mean(1) @ rng.normal(size=(16, 5))).argmax(1)
    return x, y


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        q, k, v = (a.view(b, t, self.heads, -1).transpose(1, 2) for a in (q, k, v))
        a = torch.softmax(q @ k.transpose(-2, -1) / (c // self.heads) ** 0.5, dim=-1)
        return self.proj((a @ v).transpose(1, 2).reshape(b, t, c))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.attn = Attention(16, 4)
        self.head = nn.Linear(16, 5)

    def forward(self, x):
        x = x + self.attn(self.norm(x))
        return self.head(x.mean(1))


torch.manual_seed(1)
model = Model()
opt = torch.optim.SGD(model.parameters(), lr=0.1)
loss_fn = nn.CrossEntropyLoss()
x, y = samples()
for epoch in range(2):
    for i in range(0, 256, 32):
        opt.zero_grad()
        loss = loss_fn(model(torch.from_numpy(x[i : i + 32])), torch.from_numpy(y[i : i + 32]))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        opt.step()
    print(epoch, loss.item())
