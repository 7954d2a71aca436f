"""What looking at a step really costs: its time compared with that of the steps around it in which Tensonde was not there.

Most of the cost arises where it cannot be timed: colder caches, calls that Python makes, hooks that the framework runs. So stretches
of bare steps lie between the steps that are looked at. Each is compared with the bare stretches before and after it, so that a training whose steps
become longer, or a machine that becomes slower, does not count; the median of the differences is the cost. Times are nanoseconds of
processor time of the whole process, which other programs on the machine disturb least.

A look slows down dozens of steps after it, by some per cent. Where a training rests, some stretches are therefore long, and the later
part of these is the reference: what the steps of the other stretches take more is the cost of the look before them.

Where a device computes, the times are the device's own. They are known when it has come so far, so what is told here may wait for them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from statistics import median
from typing import Protocol

FEWEST = 4
"""Comparisons that a cost is known from."""
RECENT = 5
"""Long stretches that make up the reference: few, so that it follows a training whose steps become longer."""
_KEPT = 128
_MOST_WAITING = 256
_MOST_PENDING = 64


@dataclass(frozen=True, slots=True)
class Cost:
    """Of a step, with its standard error."""

    ns: float
    error: float


class Lapse(Protocol):
    """A time that is known later."""

    def known(self) -> float | None:
        """Nanoseconds; NaN where it will never be known."""


class Costs:
    """By any kind of step."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[Callable[..., None], tuple[float | Lapse, ...]]] = deque()
        """What was told, in its order, from the first time on that is not known yet."""
        self._bare: deque[float] = deque(maxlen=_KEPT)
        self._differences: dict[int, deque[float]] = {}
        self._pending: dict[int, list[float]] = {}
        self._last: float | None = None
        self._newest: list[float] | None = None
        self._long = False
        """There have been long stretches."""

    def step(self, kind: int, ns: float | Lapse) -> None:
        """A step that was looked at."""
        self._tell(lambda ns: self._step(kind, ns), ns)

    def more(self, ns: float | Lapse) -> None:
        """What the step that was looked at last has cost since it ended."""
        self._tell(self._more, ns)

    def rested(
        self, steps: int, ns: float | Lapse, *, first: int = 0, first_ns: float | Lapse = 0.0, long: bool = False
    ) -> None:
        """So many steps were bare, and took this long together. The `first` of them ran with caches that are cold from the
        look before: what they took more than the others is the look's. `long`: the others are a reference for all stretches."""
        self._tell(lambda ns, first_ns: self._rested(steps, ns, first, first_ns, long=long), ns, first_ns)

    def _tell(self, told: Callable[..., None], *times: float | Lapse) -> None:
        self._waiting.append((told, times))
        self.settle()
        if len(self._waiting) > _MOST_WAITING:
            self._waiting.clear()

    def settle(self) -> None:
        """Takes in what is known by now."""
        while self._waiting:
            told, times = self._waiting[0]
            known = [time if isinstance(time, float | int) else time.known() for time in times]
            if any(time is None for time in known):
                return
            self._waiting.popleft()
            if all(time == time for time in known):
                told(*known)

    def _step(self, kind: int, ns: float) -> None:
        pending = self._pending.setdefault(kind, [])
        if len(pending) >= _MOST_PENDING:
            del pending[: _MOST_PENDING // 2]
        pending.append(ns)
        self._newest = pending

    def _more(self, ns: float) -> None:
        if self._newest:
            self._newest[-1] += ns

    def _rested(self, steps: int, ns: float, first: int, first_ns: float, *, long: bool) -> None:
        each = (ns - first_ns) / (steps - first)
        if long:
            if not self._long:
                self._long = True
                self._bare.clear()
            self._bare.append(each)
        if self._long:
            reference = median(list(self._bare)[-RECENT:])
            self._more(first_ns - first * reference if long else ns - steps * reference)
        else:
            self._more(max(0.0, first_ns - first * each))
            reference = each if self._last is None else (each + self._last) / 2
            self._bare.append(each)
        for kind, pending in self._pending.items():
            if pending:
                found = self._differences.setdefault(kind, deque(maxlen=_KEPT))
                found.append((pending[0] if len(pending) == 1 else median(pending)) - reference)
                pending.clear()
        self._newest = None
        self._last = each

    @property
    def bare(self) -> float:
        """A step without Tensonde; 0 where none was seen."""
        return median(self._bare) if self._bare else 0.0

    def of(self, kind: int) -> Cost | None:
        found = self._differences.get(kind)
        if found is None or len(found) < FEWEST:
            return None
        middle = median(found)
        spread = 1.4826 * median([abs(value - middle) for value in found])
        return Cost(max(0.0, middle), 1.2533 * spread / sqrt(len(found)))
