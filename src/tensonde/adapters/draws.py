"""Random numbers that two runs of different frameworks have in common: drawn by numpy, from where they are drawn alone."""

from __future__ import annotations

import zlib
from collections import Counter

import numpy as np
from numpy.typing import NDArray


class Draws:
    """The k-th draw of a shape in a step is the same in both runs, whatever either drew before."""

    def __init__(self) -> None:
        self._step = -1
        self._counts: Counter[tuple[str, tuple[int, ...]]] = Counter()

    def uniform(self, step: int, op: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
        return self._generator(step, op, shape).random(shape, dtype=np.float32)

    def normal(self, step: int, op: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
        return self._generator(step, op, shape).standard_normal(shape, dtype=np.float32)

    def _generator(self, step: int, op: str, shape: tuple[int, ...]) -> np.random.Generator:
        if step != self._step:
            self._step = step
            self._counts.clear()
        self._counts[op, shape] += 1
        key = (step, op, shape, self._counts[op, shape])
        return np.random.Generator(np.random.PCG64(zlib.crc32(repr(key).encode())))


def mask(uniform: NDArray[np.float32], p: float) -> NDArray[np.float32]:
    """What dropout multiplies by: 0 with probability p, else 1 / (1 - p)."""
    kept = uniform >= p
    return kept.astype(np.float32) / np.float32(1 - p) if p < 1 else np.zeros_like(uniform)
