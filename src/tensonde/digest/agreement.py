"""Whether tensors are equal, as far as their digests tell. Equal tensors have equal digests but for the order in which elements are added up."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from tensonde.digest.layout import COUNTS

SAME = 1e-9
"""Relative, for what is added up."""
EXACT = ("min", "max", "absmax")
SUMS = ("norm", "absmean", "mean")

Digest = Mapping[str, float]


def same(one: Digest, other: Digest) -> bool:
    """Fields that one of them does not have are not compared."""
    for name in EXACT:
        if name in one and name in other and one[name] != other[name] and one[name] == one[name]:
            return False
    size = max(abs(one.get("absmax", 0.0)), abs(other.get("absmax", 0.0)))
    for name in SUMS:
        if name in one and name in other:
            scale = size if name == "mean" else max(abs(one[name]), abs(other[name]))
            if abs(one[name] - other[name]) > SAME * scale:
                return False
    return True


def differing(rows: NDArray[np.void]) -> NDArray[np.bool_]:
    """For rows by rank and place: where the ranks differ. NaN agrees with NaN."""
    apart = np.zeros(rows.shape[1], dtype=bool)
    for name in (*COUNTS, *EXACT):
        column = rows[name]
        apart |= ((column != column[0]) & ~((column != column) & (column[0] != column[0]))).any(axis=0)
    size = np.abs(rows["absmax"]).max(axis=0)
    for name in SUMS:
        column = rows[name]
        scale = size if name == "mean" else np.abs(column).max(axis=0)
        apart |= column.max(axis=0) - column.min(axis=0) > SAME * scale
        apart |= np.isnan(column).any(axis=0) & ~np.isnan(column).all(axis=0)
    return apart
