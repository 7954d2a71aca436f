"""Steps that go too far: an early sign of divergence.

After an update `u`, the next gradient `g` tells how the loss would go on along the same line: `u · g` is negative while it still falls,
positive once the update has gone past the lowest point. Around it, noise of the batches has no sign of its own. Where the loss would rise
in nearly all of the last updates, by some hundredths of itself each, the steps are too long for the curvature that they meet: the part of the
loss that they make themselves grows with them, and the loss leaves its range when that part is no longer the smaller one.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import isfinite, sqrt
from statistics import fmean, median, stdev

UPDATES = 24
"""How many of the last updates are looked at."""
RISE = 0.02
"""What an update would add to the loss if it went on, in parts of the loss: the median."""
SURE = 3.0
"""How many standard errors the mean must lie above zero."""
SHARE = 0.6
"""Part of the updates that have gone past the lowest point."""
BACK = 0.15
"""How much of what the updates had promised (`-u · g` with the gradient of then) the next gradients take back. For gradient descent around
the minimum of a quadratic loss it is half of the rate times the curvature, however large the noise: 1 where it begins to diverge."""
NEWS = 1.5
"""Times that it must exceed all that was usual before. Small batches at a constant rate take back some all the time, and do not diverge."""
_EVERY = 6


@dataclass(frozen=True, slots=True)
class Overshoot:
    """`rise`: median of `u · g` in parts of the loss, over the last `updates` up to `step`; `share` of them were positive. `back`: part of
    what the updates had promised that is taken back."""

    step: int
    updates: int
    rise: float
    share: float
    back: float
    loss: float


class Overshoots:
    """The last updates of one optimizer."""

    def __init__(self) -> None:
        self._rises: deque[float] = deque(maxlen=UPDATES)
        self._promises: deque[float] = deque(maxlen=UPDATES)
        self._losses: deque[float] = deque(maxlen=UPDATES)
        self._recent: deque[float] = deque()
        """What was taken back, every few updates, in windows that overlap with the last one."""
        self._before = 0
        """Windows before those."""
        self._most = 0.0
        """The most that was taken back in any of them."""
        self._count = 0

    def add(self, step: int, rise: float, promise: float, loss: float) -> Overshoot | None:
        """Of one update: `u · g` with the next gradient, `-u · g` with its own, and the loss that the next gradient belongs to. What is known
        now, if it is sure."""
        if not (isfinite(rise) and isfinite(promise) and isfinite(loss)):
            self._rises.clear()
            self._promises.clear()
            self._losses.clear()
            return None
        self._rises.append(rise)
        self._promises.append(abs(promise))
        self._losses.append(loss)
        if len(self._rises) < UPDATES:
            return None
        back = sum(self._rises) / sum(self._promises) if any(self._promises) else 0.0
        if back < self._limit(back) or min(self._losses) * max(self._losses) <= 0:
            return None  # the last: parts of a loss that changes its sign mean nothing
        loss = median(map(abs, self._losses))
        share = sum(rise > 0 for rise in self._rises) / UPDATES
        middle = median(self._rises) / loss
        if share < SHARE or middle < RISE:
            return None
        error = stdev(self._rises) / sqrt(UPDATES)
        if fmean(self._rises) < SURE * error:
            return None
        return Overshoot(step, UPDATES, middle, share, back, loss)

    def _limit(self, back: float) -> float:
        """What has to be exceeded now, by what was usual before the last updates."""
        limit = max(BACK, NEWS * self._most) if self._before >= UPDATES // _EVERY else BACK
        if self._count % _EVERY == 0:
            self._recent.append(back)
            if len(self._recent) > UPDATES // _EVERY:
                self._before += 1
                self._most = max(self._most, self._recent.popleft())
        self._count += 1
        return limit
