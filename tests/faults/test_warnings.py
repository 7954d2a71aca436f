"""Warnings come as often as without Tensonde, and name the same lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from launch import Foundry

PROGRAM = """
import warnings
import torch
import torch.nn.functional as F
from torch import nn
torch.manual_seed(0)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.drop, self.b = nn.Linear(8, 8), nn.Dropout2d(0.5), nn.Linear(8, 1)

    def forward(self, x):
        warnings.warn("from forward", stacklevel=2)
        return self.b(self.drop(self.a(x)))  # dropout2d of two dimensions warns

model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(6):
    x, y = torch.randn(4, 8), torch.randn(4)
    loss = F.mse_loss(model(x), y)  # broadcasts, and warns
    if step == 3:
        loss = loss * float("inf")  # this step is run again
    again = F.mse_loss(x[:, :1], y)
    if step < 3:
        with warnings.catch_warnings():  # Python forgets what it has shown
            warnings.simplefilter("always")
            F.l1_loss(x[:, :1], y)
    optimizer.zero_grad()
    loss.backward()
    if torch.isfinite(loss):
        optimizer.step()
with warnings.catch_warnings(record=True) as caught:
    F.mse_loss(torch.zeros(3, 1), torch.zeros(3))
print(len(caught), caught[0].filename, caught[0].lineno)
warnings.simplefilter("error")
try:
    F.mse_loss(torch.zeros(3, 1), torch.zeros(3))
except UserWarning as problem:
    print(problem)
"""


@pytest.mark.parametrize("budget", [None, 0.0, float("inf")])
def test_warnings_are_those_of_the_bare_program(foundry: Foundry, tmp_path: Path, budget: float | None) -> None:
    bare = foundry.bare(PROGRAM, tmp_path)
    watched = foundry.watched(PROGRAM, tmp_path, budget=budget)
    assert bare.code == watched.code == 0
    assert "dropout2d" in bare.err
    assert [
        line for line in watched.err.splitlines() if not line.startswith("tensonde: hit: ")
    ] == bare.err.splitlines()
    assert watched.out == bare.out
