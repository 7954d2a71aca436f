"""Where a tensor was made that the program holds in a variable: followed out of the model that it was given to, and into the
function that gave it."""

from __future__ import annotations

from types import FrameType
from typing import Any

import torch
from torch import Tensor

from tensonde.adapters.torch.seams.function_mode import unseen
from tensonde.adapters.torch.tensors import is_plain
from tensonde.program import queries
from tensonde.program.frames import user_place
from tensonde.program.lines import CodeLine, line_at, line_of
from tensonde.program.origin import Wanted, made_around

MOST = 1 << 16
"""Elements of a target that is compared with variables."""


def target_line(target: Tensor, frame: FrameType | None) -> dict[str, Any] | None:
    """`frame` calls the loss that takes the target."""
    found = made_line(target, frame) or made_around(frame, lambda around: _holding(target, around))
    return found if found is not None else _assigned(user_place(frame))


def made_line(tensor: Tensor, frame: FrameType | None, wanted: Wanted | None = None) -> dict[str, Any] | None:
    """The expression that made the tensor which the outermost variable around `frame` holds; with `wanted`, the nearest such
    one on the way back."""
    return made_around(frame, lambda around: _name(tensor, around), wanted)


def _name(target: Tensor, frame: FrameType) -> str | None:
    for name, value in list(frame.f_locals.items()):
        # Not isinstance: a proxy among the variables may resent being asked.
        if issubclass(type(value), Tensor) and shares(value, target) and value.numel() == target.numel():
            return name
    return None


def _holding(target: Tensor, frame: FrameType) -> str | None:
    """The variable with the same numbers, where the loss is given a copy in another shape."""
    if target.numel() > MOST or target.device.type != "cpu":
        return None
    for name, value in list(frame.f_locals.items()):
        if (
            issubclass(type(value), Tensor)
            and is_plain(value)
            and value.numel() == target.numel()
            and value.dtype == target.dtype
            and value.device == target.device
        ):
            with unseen(), torch.no_grad():
                if torch.equal(value.detach().reshape(-1), target.detach().reshape(-1)):
                    return name
    return None


def shares(value: Tensor, other: Tensor) -> bool:
    """Both lie at the same place in memory."""
    try:
        return value is other or value.data_ptr() == other.data_ptr() != 0
    except RuntimeError:  # sparse, or of a mode that has no memory
        return False


def _assigned(place: CodeLine | None) -> dict[str, Any] | None:
    if place is None:
        return None
    path, number = place[0].co_filename, place[1]
    name = queries.target_name(path, number)
    found = queries.assignment(path, name, before=number) if name else None
    return line_at(path, found) if found else line_of(place)
