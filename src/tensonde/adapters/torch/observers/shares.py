"""What a rank has taken for itself out of a whole, in its program's own variables: numbers of samples, names of files, or the samples."""

from __future__ import annotations

import sys
import zlib
from types import FrameType
from typing import Any

import numpy as np
from torch import Tensor

from tensonde.adapters.torch.tensors import array_of
from tensonde.program.dealing import dealt_attribute, dealt_variable
from tensonde.program.frames import is_user_file, user_frames
from tensonde.program.lines import Json, line_at

FEWEST, MOST = 16, 2048
"""Items that a share has at least, and of which a checksum is kept at most."""
MOST_SHARES = 4
LARGEST = 1 << 26
"""Bytes of a variable that are read."""


def shares(frame: FrameType | None) -> list[dict[str, Any]]:
    """Of the variables in the frames of the program, and of the attributes of its objects in them."""
    found: list[dict[str, Any]] = []
    for one in user_frames(frame):
        path = one.f_code.co_filename
        for name, value in list(one.f_locals.items()):
            for spelled, held, line in _dealt(path, one.f_lineno, name, value):
                items = _items(held) if len(found) < MOST_SHARES else None
                if items is not None:
                    found.append({"name": spelled, "size": len(items), "items": sorted(items)[:MOST], "line": line})
    return found


def _dealt(path: str, line: int, name: str, value: Any) -> list[tuple[str, Any, Json]]:
    if isinstance(value, Tensor | np.ndarray | list | tuple):
        at = dealt_variable(path, line, name)
        return [(name, value, line_at(path, at))] if at else []
    kind = type(value)
    file = getattr(sys.modules.get(kind.__module__), "__file__", None) or ""
    if not file or not is_user_file(file) or not hasattr(kind, "__getitem__"):
        return []
    try:
        held = object.__getattribute__(value, "__dict__")
    except (AttributeError, TypeError):  # a class with slots
        return []
    return [
        (f"{name}.{key}", part, line_at(file, at))
        for key, part in list(held.items())
        if isinstance(part, Tensor | np.ndarray | list | tuple) and (at := dealt_attribute(file, kind.__name__, key))
    ]


def _items(held: Any) -> set[int] | None:
    """Numbers or names of which no two are equal, or rows of which no two are; None for anything else, where equal items say nothing."""
    if isinstance(held, list | tuple):
        if len(held) >= FEWEST and all(type(one) is str for one in held):
            named = {zlib.crc32(one.encode(errors="replace")) for one in held}
            return named if len(named) == len(held) else None
        if len(held) < FEWEST or not all(type(one) is int for one in held):
            return None
        held = np.asarray(held)
    if isinstance(held, Tensor):
        if held.device.type != "cpu" or held.is_complex():
            return None
        held = array_of(held.detach().contiguous())
    if held.ndim == 0 or len(held) < FEWEST or held.nbytes > LARGEST:
        return None
    if held.ndim == 1:
        found = {int(one) for one in held} if held.dtype.kind in "iu" else set[int]()
    else:
        found = {zlib.crc32(np.ascontiguousarray(row).tobytes()) for row in held}
    return found if len(found) == len(held) else None
