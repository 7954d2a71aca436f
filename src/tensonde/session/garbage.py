"""Fewer garbage collections while Tensonde makes many objects of its own.

Python collects garbage after a number of new objects. A traced step makes hundreds of thousands that live on, so the collector would
walk through all objects of the program dozens of times more often than in a bare run, and find nothing. While Tensonde traces,
collections come about as often as they would without it.
"""

from __future__ import annotations

import gc

RARER = 20
"""Times more new objects before a collection. With 1,786 modules, a traced step makes 23 times as many as a bare one."""
NEVER = 1000
"""Collections of young objects before older ones are looked at, too: most objects of a trace go with it. Those that a collection finds alive
grow old, and soon make Python walk through the whole program."""


class Unhurried:
    """Between `begin` and `end`, collections are rarer. Changes nothing where the program has switched them off or sets its own
    thresholds meanwhile."""

    def __init__(self) -> None:
        self._before: tuple[int, int, int] | None = None
        self._ours = (0, 0, 0)

    def begin(self) -> None:
        before = gc.get_threshold()
        first = before[0]
        if self._before is None and first and gc.isenabled():
            self._before, self._ours = before, (RARER * first, NEVER, NEVER)
            gc.set_threshold(*self._ours)

    def end(self) -> None:
        before, self._before = self._before, None
        if before is not None and gc.get_threshold() == self._ours:
            gc.set_threshold(*before)

    def __enter__(self) -> Unhurried:
        self.begin()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
