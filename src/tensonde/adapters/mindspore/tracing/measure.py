"""The digest of one tensor as a mapping, at once: for traces, where the numbers are wanted op by op.

Of a tensor with NaN or Inf it also says where: `bad_at` (flat index of the first), `bad_rows` and `bad_row.0` ... (indices of
the first dimension, which is mostly the sample), and `masked.D`, `masked_row.D`: how many slices along dimension D are -Inf
throughout, and the first of them. `sketch.0` ... are its sketch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensonde.adapters.mindspore.tensors import elements, values_of
from tensonde.adapters.mindspore.tracing.sketch import sketch_of
from tensonde.digest import Block, rows_of
from tensonde.digest.layout import COUNTS, STATS

LARGEST = 1 << 26
"""Elements; larger tensors are not measured."""
_ROWS = 8


class Measure:
    def __init__(self, *, sketch: bool = False) -> None:
        self._block = Block(8)
        self._sketch = sketch

    def __call__(self, tensor: Any) -> dict[str, float]:
        """{} for what has no digest."""
        if elements(tensor) > LARGEST:
            return {}
        array = tensor if isinstance(tensor, np.ndarray) else values_of(tensor)
        self._block.clear()
        if array is None or self._block.add(0, array) < 0:
            return {}
        found = rows_of(self._block)[0]
        stats = {name: float(found[name]) for name in COUNTS + STATS}
        if nonfinite(stats) and array.dtype.kind == "f":
            stats |= _places(array)
        if self._sketch:
            stats |= sketch_of(array)
        return stats


def nonfinite(stats: Mapping[str, float]) -> bool:
    return bool(stats) and stats["nan"] + stats["pos_inf"] + stats["neg_inf"] > 0


def _places(array: NDArray[Any]) -> dict[str, float]:
    bad = ~np.isfinite(array)
    found = {"bad_at": float(bad.reshape(-1).argmax())}
    if array.ndim:
        rows = np.flatnonzero(bad.reshape(len(bad), -1).any(1))
        found["bad_rows"] = float(len(rows))
        found |= {f"bad_row.{k}": float(row) for k, row in enumerate(rows[:_ROWS].tolist())}
        masked = np.isneginf(array)
        for dim in range(array.ndim if masked.any() else 0):
            whole = masked.all(dim)
            count = int(whole.sum())
            if count:
                found[f"masked.{dim}"] = float(count)
                if dim:
                    found[f"masked_row.{dim}"] = float(np.argwhere(whole)[0, 0])
    return found
