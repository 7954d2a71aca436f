"""`tensonde.attach`: cells and optimizers that the script hands over."""

from __future__ import annotations

from typing import Any

from mindspore import nn

from tensonde.adapters.mindspore.run.naming import is_optimizer
from tensonde.adapters.mindspore.run.pynative import PyNative
from tensonde.errors import UsageError


def attach_all(training: PyNative, things: tuple[Any, ...], named: dict[str, Any]) -> None:
    for thing in (*things, *named.values()):
        if not isinstance(thing, nn.Cell):
            raise UsageError(f"attach takes cells and optimizers of MindSpore, not {type(thing).__name__}.")
    cells = [thing for thing in (*things, *named.values()) if not is_optimizer(thing)]
    for name, cell in named.items():
        if not is_optimizer(cell) and id(cell) not in training.roster.entries:
            training.roster.adopt(cell, name, "" if len(cells) == 1 else f"{name}.")
    for cell in things:
        if not is_optimizer(cell) and id(cell) not in training.roster.entries:
            training.roster.meet_root(cell)
