"""How much memory of the device was in use when steps ended, for the time when it runs out."""

from __future__ import annotations

from itertools import pairwise

import torch

_EVERY = 8
"""The first steps are all looked at, later ones ever less often: asking some allocators takes as long as a few launches."""


class History:
    """Belongs to the training thread."""

    def __init__(self) -> None:
        self.used: list[tuple[int, int]] = []
        """Steps, and bytes when they had ended."""
        self._next = 0

    def step_ends(self, step: int) -> None:
        if step < self._next:
            return
        self._next = step + 1 + step // _EVERY
        try:
            self.used.append((step, int(torch.accelerator.memory_allocated())))
        except (RuntimeError, AttributeError, NotImplementedError):  # a device that does not tell
            self._next = 1 << 62

    def growth(self) -> float:
        """Bytes that each step adds, if memory only ever grows; 0: it does not, or too few steps are known."""
        known = [(step, used) for step, used in self.used if step >= 2]
        if len(known) < 3 or any(after <= before for (_, before), (_, after) in pairwise(known)):
            return 0.0
        (first, begun), (last, now) = known[0], known[-1]
        return (now - begun) / (last - first)
