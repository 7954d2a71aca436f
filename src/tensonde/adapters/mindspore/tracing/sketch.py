"""A tensor's sketch, as the torch adapter makes it (`adapters/torch/tracing/sketch.py`): equal tensors have equal ones in both."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensonde.adapters.signs import PERIOD, PROJECTIONS, signs


@functools.cache
def _vectors() -> NDArray[np.float64]:
    return signs()


def sketch_of(array: NDArray[Any]) -> dict[str, float]:
    if array.dtype.kind == "c":
        array = np.stack([array.real, array.imag], -1)
    vectors = _vectors()
    flat = np.ascontiguousarray(array).reshape(-1)
    total = np.zeros(PROJECTIONS)
    for piece, begin in enumerate(range(0, flat.size, PERIOD)):
        part = np.nan_to_num(flat[begin : begin + PERIOD].astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0)
        total += (part @ vectors[: part.size]) * vectors[(piece * 7 + 3) % PERIOD]
    return {f"sketch.{k}": float(value) for k, value in enumerate(total)}
