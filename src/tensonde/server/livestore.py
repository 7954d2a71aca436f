"""What an agent streams, kept within bounds: the latest digest of every site, and a history that gets thinner the older it is."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from tensonde.digest.latest import last_rows
from tensonde.digest.layout import ROW
from tensonde.protocol.outbox import every_second

CAPACITY = 16_384
MOST_SCALARS = 8192
Array = np.ndarray[Any, Any]
ORDERED = np.dtype([("ord", "<i8"), *((name, ROW[name]) for name in ROW.names or ())])
"""A digest row with its place in the recording."""


class LiveStore:
    """One thread adds, any thread reads; what is read is a copy or never written again."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._lock = threading.Lock()
        self._rows = np.empty(capacity, ORDERED)
        self._count = 0
        self._scalars: dict[str, tuple[list[int], list[float]]] = {}
        self.last_ord = -1
        self.last_step = -1
        """The last step that left a digest."""

    def add(self, ords: Array, rows: Array) -> Array:
        """Takes rows that are newer than what is here, and returns them."""
        fresh = ords > self.last_ord
        if not fresh.all():
            ords, rows = ords[fresh], rows[fresh]
        if not len(rows):
            return rows
        with self._lock:
            self.last_ord = int(ords.max())
            self.last_step = max(self.last_step, int(rows["step"].max()))
            if self._count + len(rows) > len(self._rows):
                self._thin(len(rows))
            end = self._count + len(rows)
            part = self._rows[self._count : end]
            part["ord"] = ords
            for name in ROW.names or ():
                part[name] = rows[name]
            self._count = end
        return rows

    def _thin(self, room: int) -> None:
        """Every second row goes, but for the latest of each site; the buffer grows where the sites alone fill it."""
        kept = self._rows[: self._count]
        _, last = last_rows(kept["site"])
        chosen = np.zeros(len(kept), bool)
        chosen[::2] = True
        chosen[last] = True
        left = kept[chosen]
        size = len(self._rows)
        while len(left) + room > size:
            if len(left) > 2 * len(last):
                left = left[len(left) // 2 :]
                continue
            size *= 2
        self._rows = np.empty(size, ORDERED)
        self._rows[: len(left)] = left
        self._count = len(left)

    def rows(self) -> Array:
        with self._lock:
            return self._rows[: self._count].copy()

    def add_scalars(self, values: dict[str, list[tuple[int, float]]]) -> None:
        with self._lock:
            for name, pairs in values.items():
                if name not in self._scalars and len(self._scalars) >= 1000:
                    continue
                steps, series = self._scalars.setdefault(name, ([], []))
                known = steps[-1] if steps else -1  # a step may have several losses; what is told again is told whole
                for step, value in pairs:
                    if step > known:
                        steps.append(step)
                        series.append(value)
                if len(steps) > MOST_SCALARS:
                    gone = every_second(steps)
                    kept = [k for k, step in enumerate(steps) if step not in gone]
                    steps[:], series[:] = [steps[k] for k in kept], [series[k] for k in kept]

    def scalars(self) -> dict[str, tuple[Array, Array]]:
        with self._lock:
            return {
                name: (np.array(steps, np.int64), np.array(values)) for name, (steps, values) in self._scalars.items()
            }
