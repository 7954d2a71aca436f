"""Where a tensor was made that the program holds in a variable: followed out of the model that it was given to, and into the
function that gave it."""

from __future__ import annotations

import ast
from collections.abc import Callable
from types import FrameType
from typing import Any

from torch import Tensor

from tensonde.adapters.torch.facts import syntax
from tensonde.adapters.torch.facts.origins import Place, line, line_at, user_place
from tensonde.adapters.torch.frames import is_user


def target_line(target: Tensor, frame: FrameType | None) -> dict[str, Any] | None:
    """`frame` calls the loss that takes the target."""
    found = made_line(target, frame)
    return found if found is not None else _assigned(user_place(frame))


def made_line(
    tensor: Tensor, frame: FrameType | None, wanted: Callable[[ast.expr], bool] | None = None
) -> dict[str, Any] | None:
    """The expression that made what the outermost variable around `frame` holds; with `wanted`, the nearest such one on the
    way back."""
    from tensonde.adapters.torch.explain import program  # these know the adapter, which knows the facts
    from tensonde.adapters.torch.explain.making import made
    from tensonde.adapters.torch.explain.standing import Stand

    found = None
    while frame is not None:
        name = _name(tensor, frame) if is_user(frame.f_code) else None
        if name is not None:
            path, number = frame.f_code.co_filename, frame.f_lineno
            scope = program.scope_at(path, number)
            if scope is not None:
                way = made(ast.Name(name, ast.Load()), Stand(path, scope, frame, number), number, wanted)
                found = way if way is not None and not isinstance(way.node, ast.Name) else found
        frame = frame.f_back
    return found.source if found is not None else None


def _name(target: Tensor, frame: FrameType) -> str | None:
    for name, value in list(frame.f_locals.items()):
        # Not isinstance: a proxy among the variables may resent being asked.
        if issubclass(type(value), Tensor) and shares(value, target) and value.numel() == target.numel():
            return name
    return None


def shares(value: Tensor, other: Tensor) -> bool:
    """Both lie at the same place in memory."""
    try:
        return value is other or value.data_ptr() == other.data_ptr() != 0
    except RuntimeError:  # sparse, or of a mode that has no memory
        return False


def _assigned(place: Place | None) -> dict[str, Any] | None:
    if place is None:
        return None
    path, number = place[0].co_filename, place[1]
    name = syntax.target_name(path, number)
    found = syntax.assignment(path, name, before=number) if name else None
    return line_at(path, found) if found else line(place)
