"""An optimizer that raised: what it was given, and how many learning rates it has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tensonde.adapters.mindspore.observers.origins import KNOWN
from tensonde.adapters.mindspore.run.naming import is_optimizer
from tensonde.adapters.mindspore.tensors import is_tensor, values_of
from tensonde.program import queries
from tensonde.program.lines import line_at
from tensonde.program.values import FrameState

_DIFFERENTIATES = ("value_and_grad", "grad")


def optimizer_in(places: Sequence[FrameState]) -> FrameState | None:
    """The frame in which an optimizer is called."""
    called = (p for p in reversed(places) if p.function == "__call__" and is_optimizer(p.frame.f_locals.get("self")))
    return next(called, None)


def stepping(places: Sequence[FrameState]) -> dict[str, Any] | None:
    place = optimizer_in(places)
    if place is None:
        return None
    optimizer, args = place.frame.f_locals["self"], place.frame.f_locals.get("args") or ()
    given = args[0] if args and isinstance(args[0], list | tuple) else ()
    rates = getattr(
        getattr(optimizer, "learning_rate", None), "learning_rate", None
    )  # a list has one value for each step
    values = values_of(rates) if is_tensor(rates) else None
    return {
        "type": type(optimizer).__name__,
        "made": KNOWN.made.line(optimizer),
        "parameters": len(optimizer.parameters),
        "given": [len(part) if isinstance(part, list | tuple) else None for part in given[:64]],
        "rates": len(values) if values is not None and values.ndim == 1 else None,
        "differentiated": _differentiated(places),
    }


def _differentiated(places: Sequence[FrameState]) -> dict[str, Any] | None:
    """The line that made the function which gives the gradients, if there is only one."""
    for path in dict.fromkeys(place.path for place in reversed(places) if place.is_user):
        lines = [line for name in _DIFFERENTIATES if (line := queries.only_call(path, name)) is not None]
        if len(lines) == 1:
            return line_at(path, lines[0])
    return None
