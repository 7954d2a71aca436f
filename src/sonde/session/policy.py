"""What is observed at a step, so that Sonde's own cost stays within the budget.

The sentinel (loss, gradients and parameters) never sleeps. Everything else is paid from an allowance:
each step adds `budget × bare step time` less what the step cost; a fuller look is taken when the
allowance covers its expected cost. What the user watches by name comes before the rest.
The first step is always seen in full.
"""

from __future__ import annotations

from enum import IntEnum


class Level(IntEnum):
    SENTINEL = 0
    WATCHED = 1
    FULL = 2


PATIENCE = 500
"""Steps for which a training may cost more than the budget before what can be spared is spared."""


class Policy:
    """Called by the training thread only. Times are nanoseconds."""

    def __init__(self, budget: float | None, *, watched: bool = False) -> None:
        """`watched`: the user watches sites by name, so the first step must show which there are, whatever the budget."""
        self.budget = budget
        self.has_watched = False
        self.level = Level.FULL if budget != 0 or watched else Level.SENTINEL
        self.bare_ns = 0.0
        self.cost_ns = 0.0
        self.counted = 0
        self.taken = dict.fromkeys(Level, 0)
        self._allowance = 0.0
        self._expected = dict.fromkeys(Level, 0.0)

    def finish_step(self, wall_ns: float, cost_ns: float, *, counted: bool = True) -> Level:
        """Accounts for the step that ended and decides the level of the next.

        `counted` is False for steps whose time says nothing (the first one, one with a stop in it).
        """
        level = self.level
        self.taken[level] += 1
        if counted:
            bare = max(wall_ns - cost_ns, 0.1 * wall_ns, 1.0)  # an estimated cost may exceed what was measured
            self.bare_ns += bare
            self.cost_ns += cost_ns
            self.counted += 1
            known = self._expected[level]
            self._expected[level] = cost_ns if known == 0 else known + 0.2 * (cost_ns - known)
            if self.budget:
                self._allowance += self.budget * bare - cost_ns
                # A long quiet stretch must not pay for a long loud one.
                self._allowance = min(self._allowance, 4 * max(self._expected[Level.FULL], self.budget * bare))
        self.level = self._next()
        return self.level

    def _next(self) -> Level:
        if self.budget is None:
            return Level.FULL
        if self.budget == 0:
            return Level.WATCHED if self.has_watched else Level.SENTINEL
        for level in (Level.FULL, Level.WATCHED) if self.has_watched else (Level.FULL,):
            if self._allowance >= self._expected[level] - self._expected[Level.SENTINEL]:
                return level
        return Level.SENTINEL

    @property
    def overdrawn(self) -> bool:
        """Even the steps that look at least have cost more than the budget, over long enough to be sure of it."""
        return bool(self.budget) and self.counted >= PATIENCE and self.ratio - 1 > (self.budget or 0.0)

    @property
    def ratio(self) -> float:
        """Measured step time with Sonde over step time without it."""
        return 1.0 + self.cost_ns / self.bare_ns if self.bare_ns else 1.0
