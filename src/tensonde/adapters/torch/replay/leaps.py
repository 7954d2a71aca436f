"""A loss that leaps far above all before it: the step is traced while it can be run again, so that its batch can be looked at."""

from __future__ import annotations

from math import isfinite

EARLY, BEFORE = 3, 10
"""Losses that must have been seen: for a leap of `TIMES`, and for one of `SOME`."""
TIMES, SOME = 1e3, 20.0
"""How many times the largest loss so far."""
MOST = 3
"""Leaps of each size that are traced in a run."""


class Leaps:
    """Belongs to the training thread. Costs a comparison per step."""

    def __init__(self) -> None:
        self._seen = 0
        self._largest = 0.0
        self._left = {TIMES: MOST, SOME: MOST}

    def is_one(self, loss: float) -> bool:
        size = abs(loss)
        if not isfinite(size):
            return False
        times = size / self._largest if self._largest > 0 else 0.0
        seen = self._seen
        self._largest = max(self._largest, size)
        self._seen += 1
        kind = TIMES if times > TIMES and seen >= EARLY else SOME if times > SOME and seen >= BEFORE else None
        if kind is None or not self._left[kind]:
            return False
        self._left[kind] -= 1
        return True
