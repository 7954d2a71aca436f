"""Tensors on different devices: the finding is at the line that must change, and says which line moved the other one."""

from __future__ import annotations

from pathlib import Path

import pytest

from launch import Foundry
from tensonde.diagnose.diagnose import diagnose

pytestmark = pytest.mark.usefixtures("standin")

PRELUDE = f"""
import sys; sys.path.append({str(Path(__file__).parent)!r})
import torch
from torch import nn
import standin

device = "standin"

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x):
        return self.last(torch.relu(self.first(x)))
"""

APART = {
    "a batch that stays": """
net = Net()
net.to(device)  # OTHER
x = torch.randn(32, 8)  # HERE
net(x).sum().backward()
""",
    "a model that stays": """
net = Net()  # HERE
for step in range(3):
    x, y = torch.randn(32, 8), torch.randint(0, 4, (32,))
    x, y = x.to(device), y.to(device)  # OTHER
    nn.functional.cross_entropy(net(x), y).backward()
""",
    "a mask that is made in the loop": """
def train(net):
    for step in range(3):
        x = torch.randn(32, 8)
        x = x.to(device)  # OTHER
        mask = torch.ones(32, 8)  # HERE
        out = net(x * mask)
train(Net().to(device))
""",
    "a plain attribute": """
class Scaled(Net):
    def __init__(self):
        super().__init__()
        self.scale = torch.ones(8)  # HERE
    def forward(self, x):
        return super().forward(x * self.scale)
net = Scaled().to(device)
x = torch.randn(32, 8)
x = x.to(device)  # OTHER
net(x)
""",
}


@pytest.mark.parametrize("name", APART)
def test_both_lines_are_named(foundry: Foundry, tmp_path: Path, name: str) -> None:
    text = PRELUDE + APART[name]
    ran = foundry.watched(text, tmp_path)
    assert ran.code == 1
    finding = diagnose(ran.recording)[0]
    lines = text.splitlines()
    here, other = (next(k for k, line in enumerate(lines, 1) if mark in line) for mark in ("# HERE", "# OTHER"))
    assert finding.rule == "device-mismatch", (finding, ran.err)
    assert finding.source is not None
    assert finding.source.line == here, finding
    assert f":{other})" in finding.title, finding.title
