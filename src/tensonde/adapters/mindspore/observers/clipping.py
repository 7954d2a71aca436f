"""Clipping of gradients by their global norm: to what, from what, and where."""

from __future__ import annotations

import statistics
import sys
from typing import Any

import numpy as np

from tensonde.adapters.mindspore.observers.origins import plain_number
from tensonde.adapters.mindspore.tensors import tensors_in, values_of
from tensonde.program.frames import user_place
from tensonde.program.lines import CodeLine, line_of

KIND = "clip_by_global_norm"
CELL = "_ClipByGlobalNorm"
"""The class that the function makes one of at every call."""
FIRST = 4
"""Calls whose norm is computed; then those whose number is a power of two."""


class Clipping:
    def __init__(self) -> None:
        self._calls = 0
        self._norms: list[float] = []
        self._limit: float | None = None
        self._place: CodeLine | None = None

    def clipped(self, cell: Any, args: tuple[Any, ...]) -> None:
        """Called by the training thread before `cell` clips."""
        self._calls += 1
        if self._calls > FIRST and self._calls & (self._calls - 1):
            return
        arrays = [values for tensor in tensors_in(args) if (values := values_of(tensor)) is not None]
        self._norms.append(float(np.sqrt(sum(float(np.square(array, dtype=np.float64).sum()) for array in arrays))))
        limit = plain_number(getattr(cell, "clip_norm", None))
        self._limit = limit if isinstance(limit, float) else self._limit
        self._place = self._place or user_place(sys._getframe(2))

    def facts(self) -> dict[str, Any]:
        if not self._calls:
            return {}
        return {
            "calls": self._calls,
            "looked_at": len(self._norms),
            "kind": KIND,
            "limit": self._limit,
            "median_norm": statistics.median(self._norms),
            "line": line_of(self._place),
        }
