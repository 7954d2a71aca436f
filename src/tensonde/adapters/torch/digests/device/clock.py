"""The budget's clock where a device computes: events in the stream of the training, which nobody waits for.

A program may be far ahead of its device, so that the host's clock shows neither what a step takes nor what Tensonde adds to it.
The time between two events in a stream shows both, also where the device waits for the program. Of several devices it is the current one's.
"""

from __future__ import annotations

import time
from math import nan

import torch

from tensonde.adapters.torch.capture import capturing


class Stamp:
    """A place in the current stream of the current device. `event` is None where none can be recorded: it is no time then."""

    __slots__ = ("event",)

    def __init__(self, event: torch.Event | None) -> None:
        self.event = event

    def __sub__(self, earlier: Stamp | int) -> Since:
        return Since(earlier.event if isinstance(earlier, Stamp) else None, self.event)

    def __rsub__(self, later: int) -> Since:
        return Since(None, None)

    def __add__(self, host_ns: int) -> Stamp:
        """Work of the host beside the steps: the device may have been busy meanwhile."""
        return self


class Since:
    """The time between two stamps, once the device has come so far."""

    __slots__ = ("_begin", "_end")

    def __init__(self, begin: torch.Event | None, end: torch.Event | None) -> None:
        self._begin, self._end = begin, end

    def known(self) -> float | None:
        if self._begin is None or self._end is None:
            return nan
        if capturing() or not self._end.query():
            return None
        return 1e6 * float(self._begin.elapsed_time(self._end))


_timed = True
"""Events of this device tell times."""


def device_clock() -> Stamp | int:
    global _timed
    if not _timed:
        return time.perf_counter_ns()
    if capturing():
        return Stamp(None)
    try:
        event = torch.Event(device=torch.accelerator.current_accelerator(), enable_timing=True)
        event.record()
    except (RuntimeError, NotImplementedError, TypeError):
        _timed = False
        return time.perf_counter_ns()
    return Stamp(event)
