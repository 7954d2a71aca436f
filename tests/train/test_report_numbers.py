"""`tensonde.report`: into the recording, for whoever tunes, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

import tensonde
from launch import Foundry
from tensonde.errors import UsageError
from tensonde.model import reported

SCRIPT = """
import torch, tensonde
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    model(torch.ones(1, 2)).sum().backward()
    tensonde.report("accuracy", step / 2)
    optimizer.step()
tensonde.report("final", 7, step=100)
"""


def test_into_the_recording_and_for_the_tuner(foundry: Foundry, tmp_path: Path) -> None:
    told = tmp_path / "reports.jsonl"
    ran = foundry.watched(SCRIPT, tmp_path, env={"TENSONDE_REPORTS": str(told)})
    assert ran.scalars("accuracy") == [(0, 0.0), (1, 0.5), (2, 1.0)]
    assert ran.scalars("final") == [(100, 7.0)]
    assert [tuple(entry) for entry in reported.read(told)] == [
        ("accuracy", 0.0, 0), ("accuracy", 0.5, 1), ("accuracy", 1.0, 2), ("final", 7.0, 100),
    ]  # fmt: skip


def test_without_anyone_it_does_nothing(foundry: Foundry, tmp_path: Path) -> None:
    ran = foundry.bare(SCRIPT, tmp_path)
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    assert not (tmp_path / ".tensonde").exists()
    with pytest.raises(UsageError, match=r"report\('x', ...\) was given 'much', which is no number"):
        tensonde.report("x", "much")  # type: ignore[arg-type]
