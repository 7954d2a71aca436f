"""A loss that leaps far above all before it: the step is traced while it can be run again, so that its batch can be looked at."""

from __future__ import annotations

from math import isfinite

BEFORE = 10
"""Losses that must have been seen."""
TIMES = 1e3
"""How many times the largest loss so far."""
MOST = 2
"""Leaps that are traced in a run."""


class Leaps:
    """Belongs to the training thread. Costs a comparison per step."""

    def __init__(self) -> None:
        self._seen = 0
        self._largest = 0.0
        self._left = MOST

    def is_one(self, loss: float) -> bool:
        size = abs(loss)
        if not isfinite(size):
            return False
        leap = self._seen >= BEFORE and size > TIMES * self._largest > 0
        self._largest = max(self._largest, size)
        self._seen += 1
        if not leap or not self._left:
            return False
        self._left -= 1
        return True
