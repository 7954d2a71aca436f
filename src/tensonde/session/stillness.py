"""Notes where the training thread is when nothing has happened for some seconds, so that others can tell why a rank waits.

A thread of its own looks once per second. It starts without `threading`, whose list of threads belongs to the program.
"""

from __future__ import annotations

import _thread
import sys
import time

from tensonde.program.frames import user_frame
from tensonde.store.collectives import CollectivesFile
from tensonde.store.whereabouts import WhereaboutsFile

EVERY = 1.0
PATIENCE = 3.0
"""Seconds without a step, a call of a root or a collective."""


class Stillness:
    """`end` may be called by any thread, twice, and in a forked child, which has no such thread."""

    def __init__(self, whereabouts: WhereaboutsFile, collectives: CollectivesFile, thread: int) -> None:
        self._whereabouts, self._collectives = whereabouts, collectives
        self._thread = thread
        self._over = False
        _thread.start_new_thread(self._look, ())

    def end(self) -> None:
        self._over = True

    def _look(self) -> None:
        moves, since, said = -1, time.time(), (0, "")
        while not self._over:
            time.sleep(EVERY)
            if self._over:
                return
            self._collectives.tell()
            if self._whereabouts.moves != moves:
                moves, since = self._whereabouts.moves, time.time()
                if said[0]:
                    said = (0, "")
                    self._whereabouts.still(0.0)
            elif time.time() - since >= PATIENCE:
                frame = user_frame(sys._current_frames().get(self._thread))
                here = (frame.f_lineno, frame.f_code.co_filename) if frame is not None else (0, "")
                if here[0] and here != said:
                    said = here
                    self._whereabouts.still(since, frame.f_code.co_name if frame else "", here[1], here[0])
                del frame
