"""Statements that change gradients by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensonde.program.gradients import rewrite_between

SCRIPT = """
def clip(model):
    norm = 1.0
    for p in model.parameters():
        p.grad.to_local().mul_(norm)

def unrelated(model):
    return model.grad.norm()

for step in range(3):
    loss.backward()
    {}
    opt.step()
"""


@pytest.mark.parametrize(
    ("statement", "line"),
    [
        ("p.grad /= 2", 12),
        ("p.grad = p.grad * 2", 12),
        ("p.grad.data[0].copy_(x)", 12),
        ("clip(model)", 5),
        ("total = clip(model)", 5),
        ("p.grad = None", None),
        ("total = p.grad.norm()", None),
        ("unrelated(model)", None),
        ("x.mul_(2)", None),
    ],
)
def test_the_statement_between_backward_and_step(statement: str, line: int | None, tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT.format(statement))
    assert rewrite_between(str(path), 11, 13) == line
