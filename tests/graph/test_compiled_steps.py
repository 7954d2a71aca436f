"""A step of the training that is compiled, in part or as a whole, with the optimizer's step in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from launch import Foundry
from tensonde.diagnose.diagnose import diagnose

SCRIPT = """
import torch
from torch import nn
from torch._dynamo.utils import counters

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(10, 16), nn.GELU(), nn.Linear(16, 3))
optimizer = torch.optim.AdamW(model.parameters(), lr=torch.tensor(1e-2))
truth = torch.randn(10, 3)


def loss_of(x, y):
    return nn.functional.cross_entropy(model(x), y)


@STEP@

for step in range(25):
    x = torch.randn(32, 10)
    loss = train(x, (x @ truth).argmax(1))
print(loss.item(), [p.sum().item() for p in model.parameters()])
print(sorted(counters["graph_break"].values()), counters["stats"]["unique_graphs"])
"""
OPTIMIZER = """
update = torch.compile(lambda: optimizer.step(), backend="aot_eager")


def train(x, y):
    loss = loss_of(x, y)
    optimizer.zero_grad()
    loss.backward()
    update()
    return loss
"""
WHOLE = """
@torch.compile(backend="aot_eager")
def train(x, y):
    optimizer.zero_grad()
    loss = loss_of(x, y)
    loss.backward()
    optimizer.step()
    return loss
"""


@pytest.mark.parametrize("step", [OPTIMIZER, WHOLE], ids=["optimizer", "whole"])
def test_the_compiler_does_not_see_tensonde(step: str, foundry: Foundry, tmp_path: Path) -> None:
    """Same bits, same graphs and breaks; steps are counted; nothing is said about an optimizer that seems never to step."""
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.replace("@STEP@", step))
    bare = foundry.bare(script, tmp_path)
    watched = foundry.watched(script, tmp_path)
    assert bare.code == watched.code == 0, watched.err
    assert watched.out == bare.out
    assert watched.session["steps"] == 25
    assert len(watched.scalars("loss")) == 25
    assert not watched.session["failures"]
    assert [f.title for f in diagnose(watched.recording) if f.severity != "info"] == []
