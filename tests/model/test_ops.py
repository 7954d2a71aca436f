"""The table of ops is the only list of op names outside of the adapters."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import tensonde
from tensonde.model.ops import MODULES, OPS, Trait, modules, ops

ROOT = Path(tensonde.__file__).parent
NEUTRAL = ("compare", "diagnose", "model", "page", "server", "session", "watch")


def test_traits_are_asked_for_together() -> None:
    assert ops(Trait.RECURRENT) == {"lstm", "gru", "rnn_tanh", "rnn_relu"}
    assert ops(Trait.ADDS | Trait.ADDS_IN_PLACE) == ops(Trait.PLUS) == {"add", "radd", "add_"}
    assert "getitem" not in ops(Trait.PASSES & ~Trait.SELECTS)
    assert "BatchNorm2d" in modules(Trait.BATCH_NORM)


@pytest.mark.parametrize("trait", Trait)
def test_every_trait_has_an_op(trait: Trait) -> None:
    assert ops(trait) or modules(trait)


def test_nobody_else_lists_ops() -> None:
    known = OPS.keys() | MODULES.keys()
    for path in (path for name in NEUTRAL for path in (ROOT / name).rglob("*.py") if path.name != "ops.py"):
        for node in ast.parse(path.read_text()).body:
            if not isinstance(node, ast.Assign) or isinstance(node.value, ast.Constant):
                continue
            names = [part.value for part in ast.walk(node.value) if isinstance(part, ast.Constant)]
            assert len(names) < 2 or not known.issuperset(names), f"{path.name}: {ast.unparse(node.targets[0])}"
