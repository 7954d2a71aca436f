"""A loss that is multiplied by a large number, and gradients that are not divided again."""

from __future__ import annotations

from pathlib import Path

import pytest

from launch import Foundry
from tensonde.diagnose.diagnose import diagnose

PROGRAM = """
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 1))
optimizer = torch.optim.{optimizer}(model.parameters(), lr=0.05)
for step in range(60):
    x = torch.randn(32, 6)
    loss = ((model(x) - x[:, :1]) ** 2).mean() * {factor}
    optimizer.zero_grad()
    loss.backward()
    {undo}
    optimizer.step()
"""
UNDO = "[p.grad.div_(1024.0) for p in model.parameters()]"


def test_the_factor_is_named(foundry: Foundry, tmp_path: Path) -> None:
    ran = foundry.watched(PROGRAM.format(optimizer="SGD", factor="1024.0", undo="pass"), tmp_path)
    first = diagnose(ran.recording)[0]
    assert first.rule == "divergence"
    assert "multiplied by 1024" in first.title
    assert first.source is not None
    assert "* 1024.0" in first.source.code


@pytest.mark.parametrize(("factor", "undo"), [("1024.0", UNDO), ("0.5", "pass")])
def test_a_factor_that_is_undone_or_small_is_fine(foundry: Foundry, tmp_path: Path, factor: str, undo: str) -> None:
    ran = foundry.watched(PROGRAM.format(optimizer="SGD", factor=factor, undo=undo), tmp_path)
    assert [finding for finding in diagnose(ran.recording) if finding.severity != "info"] == []


def test_a_rate_that_is_too_large_by_itself_is_still_the_rate(foundry: Foundry, tmp_path: Path) -> None:
    program = PROGRAM.format(optimizer="SGD", factor="1.0", undo="pass").replace("lr=0.05", "lr=50.0")
    first = diagnose(foundry.watched(program, tmp_path).recording)[0]
    assert (first.rule, "learning rate" in first.title) == ("divergence", True)
