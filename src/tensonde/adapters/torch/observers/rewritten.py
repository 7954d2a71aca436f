"""Data sets that write into what they keep: `img = self.images[i]; img -= mean` changes the stored image, again in each epoch.

Told by two things together: the user's `__getitem__` writes in place into what it took out of an attribute, and a few values of that
attribute are others at the start of the next pass. No sample is made for it; data sets without such a line are never looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from torch import Tensor

from tensonde.adapters.torch.run.batches import sample_place
from tensonde.adapters.torch.tensors import is_plain
from tensonde.program.frames import is_user
from tensonde.program.lines import line_at
from tensonde.program.writes import kept_writes

ROWS = 16
VALUES = 8


class Watched:
    """One attribute of one data set, over the passes."""

    def __init__(self, name: str, attribute: str, line: dict[str, Any]) -> None:
        self.facts: dict[str, Any] = {
            "dataset": name,
            "attribute": attribute,
            "line": line,
            "compared": 0,
            "changed": 0,
        }
        self.attribute = attribute
        self._last: list[float] | None = None

    def look(self, kept: Any) -> None:
        now = list(_some(kept))
        if self._last is not None and len(now) == len(self._last) > 0:
            self.facts["compared"] += 1
            self.facts["changed"] += now != self._last
        self._last = now


def watched(dataset: Any) -> Watched | None:
    """Of a data set whose `__getitem__` writes into what it keeps, as its source reads."""
    place = sample_place(dataset)
    if place is None:
        return None
    held = getattr(own(dataset), "__dict__", {})
    for attribute, number in kept_writes(*place):
        if attribute in held:
            return Watched(type(own(dataset)).__name__, attribute, line_at(place[0], number))
    return None


def own(dataset: Any) -> Any:
    """The one whose `__getitem__` is the user's: a subset has another inside."""
    for _ in range(8):
        code = getattr(getattr(type(dataset), "__getitem__", None), "__code__", None)
        if (code is not None and is_user(code)) or not hasattr(dataset, "dataset"):
            break
        dataset = dataset.dataset
    return dataset


def _some(kept: Any, depth: int = 3) -> Iterator[float]:
    """A few values of what is kept, the same ones each time."""
    if isinstance(kept, Tensor):
        if not is_plain(kept) or kept.is_complex():
            return
        for row in _spread(kept.detach()) if kept.ndim else (kept.detach(),):
            yield from (float(value) for value in row.reshape(-1)[:VALUES])
    elif isinstance(kept, np.ndarray):
        if kept.dtype.kind not in "iuf":
            return
        for row in _spread(kept) if kept.ndim else (kept,):
            yield from (float(value) for value in row.reshape(-1)[:VALUES])
    elif isinstance(kept, list | tuple | dict) and depth:
        for item in _spread(list(kept.values()) if isinstance(kept, dict) else kept):
            yield from _some(item, depth - 1)


def _spread(kept: Any) -> Iterator[Any]:
    for k in range(0, len(kept), max(1, len(kept) // ROWS)):
        yield kept[k]
