"""Which steps of a training are asked, and how long each may take: the same for every framework.

Few steps are asked; what is spent stays within what the options say, and within a share of a longer run. A step that takes too long for that is not asked.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from tensonde.experiments.step import NotPossible

SHARE, MOST = 0.1, 3.0
"""Of a longer run, up to so many times what the options say."""
LONG = 0.02
"""Of a very long one."""
EACH = 0.35
"""The part of the time that is left which one step may take."""
LATE, LATER = 48, 0.3
"""What a training has learnt shows from such a step on: the part of the time that is kept for then."""
FEW, IN_A_CHECK = 4, 14.0
"""Where a training is to end after so few steps: times its own that a step may take for experiments."""
AGAIN = 2.0
"""Times its own: what a step takes to be recorded."""
RECORDING = 0.5
"""Of its time: what recording a step may take before it is given up."""
SMALLEST = 0.25
"""Of its time: what one computation of a recorded step may take, so that whoever is late is not late by much."""
ROOM = 1.5
"""Times what recording and the questions of every step have taken: what a late step may take, whatever its part."""
SPARED, DEAR = 24, 4.0
"""A step that is left out where to take it down would take more than a quarter of its time: it tells little more than the one before."""
STEPS = (1, 12, 24, 48, 96, 192, 384, 768, 1536, 3072, 6144, 12288)
"""Steps that are asked: the first that is like all others, and then ever fewer."""
TOO_LONG = "the step takes longer than experiments may"
Clock = Callable[[], float]


class Timetable:
    """Belongs to the training thread."""

    def __init__(self, asked: float, clock: Callable[[], Clock], ends: int | None) -> None:
        """`asked`: seconds, by the options. `clock` says which clock counts at the moment. `ends`: the training is to end after so many steps."""
        self.seconds = _seconds(asked)
        self._chosen, self._ends = clock, ends
        self._began = {clock: clock() for clock in (time.thread_time, time.process_time, time.perf_counter)}
        self.spent = 0.0
        self.recording = 0.0
        """Seconds that the last recording took, or had taken when it was given up."""
        self._noticed: tuple[int, float] = -1, 0.0
        """The step that is to be asked, and when it began."""

    def now(self) -> float:
        return self._chosen()()

    def notice(self, step: int) -> bool:
        """Called when a step begins, and again: whether it is one to be asked."""
        if step not in STEPS:
            return False
        if self._noticed[0] != step:
            self._noticed = step, self.now()
        return True

    def allowed(self, step: int, dues: float) -> float:
        """Seconds for this step; raises `NotPossible` where that is too little. `dues`: what the questions of every step have taken."""
        now = self.now()
        took = now - self._noticed[1]
        kept = LATER * self.seconds if step < LATE else 0.0
        left = self._allowance(now - self._began[self._chosen()]) - self.spent - kept
        allowed = EACH * left
        if step >= LATE:  # rather one more step as a whole than time that no step may take
            allowed = max(allowed, min(left, max(DEAR * self.recording, ROOM * (self.recording + dues))))
        if 0 < (self._ends or 0) <= FEW:  # the training ends before another is asked
            allowed = min(allowed / EACH + kept, IN_A_CHECK * took)
        if step == SPARED and allowed < DEAR * self.recording:
            raise NotPossible("recording the step would use the time of later steps")
        if allowed < max(0.01, AGAIN * took, self.recording / RECORDING):
            raise NotPossible("the time for experiments is spent" if self.spent else TOO_LONG)
        return allowed

    def _allowance(self, elapsed: float) -> float:
        """Seconds, in a run that has taken so long."""
        return max(self.seconds, min(SHARE * elapsed, MOST * self.seconds), LONG * elapsed)


def _seconds(asked: float) -> float:
    """What the options say, or `TENSONDE_EXPERIMENTS`."""
    try:
        return max(0.0, float(os.environ["TENSONDE_EXPERIMENTS"]))
    except (KeyError, ValueError):
        return asked
