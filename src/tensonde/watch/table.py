"""Rows as columns, without any history: what `Expression.evaluate` reads when there is no engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensonde.watch.estimate import inside
from tensonde.watch.vocabulary import CONTEXT, DERIVED, Column


class Table:
    """`rows` is a structured array of digests, or a mapping from field to column."""

    def __init__(self, rows: NDArray[np.void] | Mapping[str, Any]) -> None:
        self.rows = rows
        self.stored = set(rows) if isinstance(rows, Mapping) else set(rows.dtype.names or ())
        self.cache: dict[str, Column] = {}
        self.size = len(rows) if not isinstance(rows, Mapping) else max((np.size(v) for v in rows.values()), default=0)

    def field(self, name: str) -> Column:
        column = self.cache.get(name)
        if column is None:
            column = self.cache[name] = self._compute(name)
        return column

    def _compute(self, name: str) -> Column:
        if name in self.stored:
            return np.atleast_1d(np.asarray(self.rows[name], dtype=np.float64))
        if name in CONTEXT:
            return np.full(self.size, 0.0 if name == "scaled" else np.nan)
        return DERIVED[name][1](self.field)

    def history(self, function: str, field: str, length: int) -> Column:
        return np.full(self.size, np.nan)

    def seen(self) -> Column:
        return np.zeros(self.size)

    def spread(self, field: str) -> Column:
        return np.full(self.size, np.nan)

    def inside(self, low: float, high: float) -> Column:
        if isinstance(self.rows, Mapping):
            raise TypeError("inside() needs digest rows, not a mapping of columns")
        return inside(self.rows, low, high)
