"""The columns of a data set, where the training takes another number of them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from types import FrameType
from typing import Any

from mindspore.dataset.engine.datasets import Dataset

from tensonde.program.classes import item_line, returned_line

WRONG = re.compile(r"'\w*dataset' should return (\w+) elements, but got (\d+)")
_NUMBERS = {"one": 1, "two": 2, "three": 3}


def source_in(frames: Iterable[FrameType]) -> Any:
    """Where the samples of the first data set in these frames come from; None where there is none."""
    held = (value for frame in frames for value in frame.f_locals.values() if isinstance(value, Dataset))
    source: Any = next(held, None)
    while getattr(source, "children", None):
        source = source.children[0]
    return source


def columns(message: str, frames: Iterable[FrameType]) -> dict[str, Any] | None:
    """`frames` innermost first. `line` makes the first column that is too many."""
    found = WRONG.search(message)
    if found is None or found[1] not in _NUMBERS:
        return None
    taken, given = _NUMBERS[found[1]], int(found[2])
    source = source_in(frames)
    fact: dict[str, Any] = {"taken": taken, "given": given}
    if source is None:
        return fact
    names = getattr(source, "column_names", None)
    if isinstance(names, list | tuple):
        fact["names"] = [str(name) for name in names][:16]
    maker = getattr(source, "source", None)
    if maker is not None and given > taken:
        line = returned_line(maker, [taken]) if callable(maker) else item_line(type(maker), taken, object)
        if line is not None:
            fact["line"] = line
    return fact
