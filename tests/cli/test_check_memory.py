"""`tensonde check --memory` on the CPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from launch import cli

SCRIPT = """
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 4))
optimizer = torch.optim.Adam(net.parameters())
total = 0
for step in range(8):
    loss = nn.functional.cross_entropy(net(torch.randn(256, 32)), torch.randint(0, 4, (256,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    total = total + net(torch.randn(256, 32)).mean()  # KEPT
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(SCRIPT)
    return tmp_path / "train.py"


def test_what_is_taken_and_what_would_fit(script: Path) -> None:
    ran = cli("check", "--memory", "--json", "--limit", "400K", "train.py", cwd=script.parent)
    assert ran.code == 1, ran.err
    found = json.loads(ran.out)
    parameters = 4 * (32 * 64 + 64 + 64 * 4 + 4)
    assert found["device"] == "cpu"
    assert found["uses"]["parameters"] == parameters
    assert found["uses"]["optimizer"] == pytest.approx(2 * parameters, abs=64)  # and the numbers of their steps
    assert found["peak"] == sum(found["uses"].values())
    assert found["batch"] == 256
    assert found["fits"] is False
    assert 0 < found["largest_batch"] < 256
    assert found["growth"] > 256 * 64 * 4, "what the first layer gives, at the least"
    (keeper,) = found["keepers"]
    assert keeper["name"] == "total"
    assert "# KEPT" in keeper["line"]["code"]


def test_it_is_said_in_words(script: Path) -> None:
    ran = cli("check", "--memory", "--limit", "1G", "train.py", cwd=script.parent)
    assert ran.code == 0, ran.err
    assert "peak: " in ran.out
    assert "activations" in ran.out
    assert "every step leaves" in ran.out
    assert "`total` holds" in ran.out
    assert "it fits into 1.0 GiB" in ran.out


def test_a_limit_needs_the_memory(script: Path) -> None:
    assert cli("check", "--limit", "1G", "train.py", cwd=script.parent).code == 2
