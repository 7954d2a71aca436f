"""`tensonde.report`: into the recording, for whoever tunes, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

import tensonde
from launch import Foundry
from tensonde.errors import UsageError
from tensonde.model import reported
from tensonde.session.steps import Steps

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


AFTER = """
import torch, tensonde
from torch import nn
model = nn.Sequential(*[nn.Linear(4, 4) for _ in range(30)])
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
for step in range(120):
    out = model(torch.ones(1, 4))
    tensonde.report("within", step)
    out.sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    tensonde.report("after", step)
    with torch.no_grad():
        model(torch.ones(1, 4))
    tensonde.report("evaluated", step)
"""


@pytest.mark.parametrize("budget", [None, 0.05])
def test_a_number_belongs_to_the_step_that_made_it(foundry: Foundry, tmp_path: Path, budget: float | None) -> None:
    """Also after the optimizer's step, and in steps in which modules are left alone."""
    ran = foundry.watched(AFTER, tmp_path, budget=budget)
    for name in ("within", "after", "evaluated"):
        assert ran.scalars(name) == [(step, float(step)) for step in range(120)], name


def test_where_forwards_are_not_noticed_a_place_stays_where_it_was() -> None:
    steps = Steps()

    def step(*, seen: bool) -> tuple[int, int]:
        steps.begun = seen
        within = steps.step_at("within", seen=seen)
        steps.after_optimizer(1)
        steps.advance()
        return within, steps.step_at("after", seen=seen)

    assert [step(seen=seen) for seen in (True, False, True, False)] == [(0, 0), (1, 1), (2, 2), (3, 3)]


def test_several_optimizers_end_a_step_together(foundry: Foundry, tmp_path: Path) -> None:
    ran = foundry.watched(
        """
        import torch, tensonde
        from torch import nn
        one, other = nn.Linear(2, 1), nn.Linear(2, 1)
        optimizers = [torch.optim.SGD(part.parameters(), lr=0.1) for part in (one, other)]
        for step in range(3):
            for part, optimizer in zip((one, other), optimizers):
                part(torch.ones(1, 2)).sum().backward()
                optimizer.step()
                tensonde.report("number", step)
        """,
        tmp_path,
    )
    assert ran.scalars("number") == [(step, float(step)) for step in range(3) for _ in range(2)]


def test_without_anyone_it_does_nothing(foundry: Foundry, tmp_path: Path) -> None:
    ran = foundry.bare(SCRIPT, tmp_path)
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    assert not (tmp_path / ".tensonde").exists()
    with pytest.raises(UsageError, match=r"report\('x', ...\) was given 'much', which is no number"):
        tensonde.report("x", "much")  # type: ignore[arg-type]
