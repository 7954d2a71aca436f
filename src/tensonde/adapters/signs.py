"""The fixed vectors of signs that sketches are made with: the same in every framework, so that sketches of two can be compared."""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

PROJECTIONS = 8
PERIOD = 1 << 15
"""Signs of longer tensors are products of those of the place in the piece and those of the piece."""


def signs() -> NDArray[np.float64]:
    drawn = np.random.Generator(np.random.PCG64(20010)).integers(0, 2, (PERIOD, PROJECTIONS))
    return np.asarray(drawn * 2.0 - 1.0, dtype=np.float64)


@functools.cache
def packed_signs() -> bytes:
    """For the kernel: a byte per position, a bit per vector."""
    return np.packbits(signs() > 0, axis=1, bitorder="little").tobytes()
