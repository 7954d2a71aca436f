"""Which variable or attribute of the program holds a certain object, and the line that put it there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import nn

from tensonde.adapters.torch.postmortem.definition import frames, roots
from tensonde.adapters.torch.postmortem.traceback import Failure
from tensonde.program.classes import last_set, source_file
from tensonde.program.origin import outermost

_MOST_ITEMS = 1000


def held_by(thing: Any, failure: Failure) -> dict[str, Any] | None:
    """`name` and `line`: of a variable of a user's frame first, then of an attribute, then of a list or dictionary
    that has it among its items."""
    around = frames(failure)[::-1]
    found = outermost(around, lambda held: held is thing)
    if found is None:
        for owner, name, inner in _attributes(failure):
            if inner is thing:
                found = {"name": f"{type(owner).__name__}.{name}", "line": last_set(type(owner), name)}
                break
    return found or outermost(around, lambda held: _among(thing, held))


def _attributes(failure: Failure) -> Iterator[tuple[Any, str, Any]]:
    """Of the modules, and of other objects that stand in the user's frames."""
    modules = [module for root in roots(failure) for module in root.modules()]
    others = [
        held
        for frame in frames(failure)
        for held in frame.f_locals.values()
        if not isinstance(held, nn.Module) and source_file(type(held)) is not None
    ]
    for owner in [*modules, *others]:
        table = dict(getattr(owner, "__dict__", {}))
        if isinstance(owner, nn.Module):
            table |= owner._parameters | owner._buffers
        for name, held in table.items():
            yield owner, name, held


def _among(thing: Any, held: Any) -> bool:
    items = list(held.values()) if type(held) is dict else held if type(held) in (list, tuple) else ()
    return any(item is thing for item in items[:_MOST_ITEMS])
