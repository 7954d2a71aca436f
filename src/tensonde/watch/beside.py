"""The digests of several ranks, side by side: what conditions that compare ranks read."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tensonde.digest.agreement import differing
from tensonde.watch.table import Table
from tensonde.watch.vocabulary import Column


class Beside:
    """`rows`: by rank and place, of the same site, step and call at each place."""

    def __init__(self, rows: NDArray[np.void]) -> None:
        self.rows = rows
        self._tables = [Table(row) for row in rows]

    def differs(self) -> Column:
        with np.errstate(all="ignore"):
            return differing(self.rows).astype(np.float64)

    def spread(self, field: str) -> Column:
        """NaN where a rank has none."""
        columns = np.stack([table.field(field) for table in self._tables])
        with np.errstate(all="ignore"):
            spread: Column = columns.max(axis=0) - columns.min(axis=0)
        return spread
