"""The bounded memory between the training and the disk: a fixed number of slots, each filled by one thread and written by
another. When none is free the filling thread waits, which is the back-pressure, and counts how long.
"""

from __future__ import annotations

import mmap
import queue
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

SLOT = 8 << 20


@dataclass(slots=True)
class Slot:
    """`memory` is page-aligned; `filled` bytes of it count."""

    memory: np.ndarray[Any, Any]
    filled: int = 0

    @property
    def free(self) -> int:
        return len(self.memory) - self.filled


class Pool:
    """`take` by the filling thread, `give` by the writing one. A signal handler may call either.

    The slot that came back last goes out first, so no more memory is ever touched than the disk lags behind.
    """

    def __init__(self, size: int, slot: int = SLOT) -> None:
        count = max(2, size // slot)
        self._map = mmap.mmap(-1, count * slot, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        for advice in ("MADV_HUGEPAGE", "MADV_DONTFORK"):  # fewer page faults; and a data worker needs no copy of it
            if hasattr(mmap, advice):
                try:
                    self._map.madvise(getattr(mmap, advice))
                except OSError:
                    pass
        memory: np.ndarray[Any, Any] = np.frombuffer(self._map, np.uint8)
        self._free = [Slot(memory[k * slot : (k + 1) * slot]) for k in reversed(range(count))]
        self._tokens: queue.SimpleQueue[None] = queue.SimpleQueue()
        for _ in self._free:
            self._tokens.put(None)
        self.size = count * slot
        self.waits = 0
        self.waited_ns = 0

    def take(self) -> Slot:
        try:
            self._tokens.get_nowait()
        except queue.Empty:
            began = time.perf_counter_ns()
            self._tokens.get()
            self.waits += 1
            self.waited_ns += time.perf_counter_ns() - began
        return self._free.pop()

    def give(self, slot: Slot) -> None:
        slot.filled = 0
        self._free.append(slot)
        self._tokens.put(None)
