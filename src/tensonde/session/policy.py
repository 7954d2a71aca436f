"""What is observed at a step, so that Tensonde's own cost stays within the budget.

The sentinel looks at loss, gradients and parameters. Everything else is paid from an allowance: each step
adds `budget × bare step time` less what the step cost; a fuller look is taken when the allowance covers its
expected cost. Where the sentinel leaves nothing, full looks still get a tenth of the budget: modules must be seen now and
then. What the user watches by name comes before the rest. The first step is always seen in full.
Where steps are so short that even the sentinel is dearer than the budget, some steps rest: only the loss is
looked at, and the sentinel comes as often as it can be paid for, but at least now and then.

Not all that a look costs can be measured where it arises: caches are colder after it, and Python's way into a
hook is nobody's. So more is charged to the allowance than was measured.
"""

from __future__ import annotations

from enum import IntEnum


class Level(IntEnum):
    REST = -1
    SENTINEL = 0
    WATCHED = 1
    FULL = 2


PATIENCE = 500
"""Steps for which a training may cost more than the budget before what can be spared is spared."""
SENTINEL_EVERY = 64
"""At the least, in a training that rests."""
OWED = 0.1
"""The share of the budget that belongs to full looks, whatever else costs."""
DEBT = 20
"""Sentinel's costs, at most, that have to be earned back by resting."""
MOST_ASKED = 16
"""Full looks that may be asked for, whatever the budget says."""
UNSEEN = 1.5
"""What a look costs over what is measured of it."""
UNSEEN_SHORT = 2.5
"""The same in a training that rests, whose steps take a few milliseconds: of the benchmark's MLP, 1.4 to 2.9."""


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
        self.overdrawn = False
        """Even the steps that look at least have cost more than the budget, over long enough to be sure of it."""
        self._allowance = 0.0
        self._expected = dict.fromkeys(Level, 0.0)
        self._rested = 0
        self._owed = 0.0
        self._asked, self._due = 0, False

    def look_soon(self) -> None:
        """Something new takes part in the training: the next step is looked at in full, unless only the sentinel may look."""
        if self.budget and self._asked < MOST_ASKED:
            self._asked += 1
            self._due = True

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
            charge = (UNSEEN_SHORT if self.overdrawn else UNSEEN) * cost_ns
            known = self._expected[level]
            self._expected[level] = charge if known == 0 else known + 0.2 * (charge - known)
            if self.budget:
                self._owed = 0.0 if level is Level.FULL else self._owed + OWED * self.budget * bare
                self._allowance += self.budget * max(wall_ns - charge, 0.1 * wall_ns) - charge
                # A long quiet stretch must not pay for a long loud one.
                self._allowance = min(self._allowance, 4 * max(self._expected[Level.FULL], self.budget * bare))
                if not self.overdrawn and self.counted >= PATIENCE and self.ratio - 1 > self.budget:
                    afford = UNSEEN * self.budget * self.bare_ns / self.counted  # resting is for what is certain
                    self.overdrawn = self._expected[Level.SENTINEL] > afford
                if self.overdrawn:
                    self._allowance = max(self._allowance, -DEBT * self._expected[Level.SENTINEL])
        self.level = self._next()
        return self.level

    def _next(self) -> Level:
        if self.budget is None:
            return Level.FULL
        if self.budget == 0:
            return Level.WATCHED if self.has_watched else Level.SENTINEL
        if self._due:
            self._due = False
            return Level.FULL
        if self._owed >= self._expected[Level.FULL] > 0:
            return Level.FULL
        for level in (Level.FULL, Level.WATCHED) if self.has_watched else (Level.FULL,):
            if self._allowance >= self._expected[level] - self._expected[Level.SENTINEL]:
                return level
        if not self.overdrawn or self._allowance >= 0 or self._rested + 1 >= SENTINEL_EVERY:
            self._rested = 0
            return Level.SENTINEL
        self._rested += 1
        return Level.REST

    @property
    def ratio(self) -> float:
        """Measured step time with Tensonde over step time without it."""
        return 1.0 + self.cost_ns / self.bare_ns if self.bare_ns else 1.0
