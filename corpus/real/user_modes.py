"""A training inside the user's own function and dispatch modes, with models built on the meta device in between."""

from collections import Counter

import torch
from fingerprint import report
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

torch.manual_seed(0)


class Functions(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.seen = Counter()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.seen[getattr(func, "__name__", str(func))] += 1
        return func(*args, **(kwargs or {}))


class Kernels(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen[str(func)] += 1
        return func(*args, **(kwargs or {}))


model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
functions, kernels = Functions(), Kernels()


def step():
    x = torch.randn(16, 4)
    loss = nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


for k in range(30):
    step()
    with torch.device("meta"):
        assert nn.Linear(4, 4)(torch.randn(2, 4)).is_meta
    assert torch.randn(1).device.type == "cpu"
    with functions:
        step()
    with kernels:
        loss = step()
print(f"{loss:.6f}")
print(sorted(functions.seen.items()))
print(sorted(kernels.seen.items()))
report(model, optimizer)
