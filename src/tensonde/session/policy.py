"""What is looked at in a step, so that Tensonde's own cost stays within the budget.

The sentinel looks at loss, gradients and parameters. Everything else is paid from an allowance: each step
adds `budget × bare step time` less what the step cost; a fuller look is taken when the allowance covers its
expected cost. Where the sentinel leaves nothing, full looks still get a tenth of the budget: modules must be seen now and
then. What the user watches by name comes before the rest. The first step is always seen in full.

Costs are measured by comparison with bare steps (`measured.py`), from stretches in which Tensonde is taken out of the training: from
step 500 on, two steps or so in 64, and where steps are short some fifty in a row per thousand. Until then they are estimated from what was timed. Where even the sentinel costs more than the
budget, the training *rests*: most of its steps are bare. A *glance* (loss, gradients and parameters, and nothing else in the
training's way) comes every 2, 4, … 256 steps, and a full look with the step after it when what the last one cost has been
paid back. With `--budget 0` every step is at least glanced at. See docs/adr/0008.
"""

from __future__ import annotations

from enum import IntEnum
from math import hypot

from tensonde.session.measured import Costs, Lapse


class Level(IntEnum):
    REST = -2
    GLANCE = -1
    SENTINEL = 0
    WATCHED = 1
    FULL = 2


PATIENCE = 500
"""Steps after which costs are measured, and a training may rest: the start, where most trainings go wrong, is seen whole."""
LONG_NS = 60_000_000_000
"""The same for long steps: after so much time."""
CERTAIN_NS = 10_000_000_000
"""The same where what was timed alone is more than twice the budget."""
FEW = 24
"""Steps that must have been seen whole, however long they take."""
GLANCE_EVERY = 256
"""Steps at most between two looks at the parameters."""
ALIGNED = 16
"""A full look falls on a multiple of this, as what is noted about batches and modes does."""
NOTED_EVERY = 64
"""With `--budget 0`, where steps are short: of two of these, more is noted than loss, gradients and parameters."""
NOTICED = 0.05
"""The share of a step from which on the sentinel is not cheap."""
POLL_NS = 250_000_000
"""The longest rest before Tensonde looks for requests. A pause is noticed in every step."""
COLD = 3
"""Steps after a look whose caches are cold; they count as bare ones only in stretches of twice as many."""
LONG_EVERY = 16
"""One stretch in this many is long. Its second half shows how long a bare step takes."""
LONG_STEPS = 32
"""The fewest steps of a long stretch."""
SHORT_NS = 20_000_000
"""Steps shorter than this are slowed down by a look before them, so that a short stretch is no reference."""
REFERENCE_EVERY = (16, 64)
"""Steps between two bare stretches of a training that does not rest: at first, and later."""
SPENT = 0.5
"""The share of the budget that looks may use. The rest covers costs that a process cannot measure itself: compared with two
bare processes, a watched one takes 1 to 3 per cent more than its own measurements say."""
OWED = 0.1
"""The share of the budget that belongs to full looks, whatever else costs."""
MOST_ASKED = 16
"""Full looks that may be asked for, whatever the budget says."""
UNSEEN = 1.5
"""What a look costs over what is timed of it, until it has been measured."""
REPLAN = 16
"""Bare stretches after which costs are looked up anew."""
MOST_WOKEN = 8
"""Evaluations that a rest is ended for, whatever they cost; later ones must be paid for."""


class Policy:
    """Called by the training thread only. Times are nanoseconds."""

    def __init__(self, budget: float | None, *, watched: bool = False) -> None:
        """`watched`: the user watches sites by name, so the first step must show which there are, whatever the budget."""
        self.budget = budget
        self.has_watched = False
        self.may_rest = False
        """Nothing forbids it: the adapter says so before each step."""
        self.level = Level.FULL if budget != 0 or watched else Level.SENTINEL
        self.stretch = 0
        """Bare steps that follow, where the level is REST."""
        self.cold = 0
        """The first of them, which are timed apart."""
        self._long = False
        self.counter_ns = 0.0
        """What counting a bare step costs."""
        self.bare_ns = 0.0
        self.cost_ns = 0.0
        self.counted = 0
        self.steps = 0
        self.taken = dict.fromkeys(Level, 0)
        self.resting = False
        self.costs = Costs()
        self.early_ns = 0.0
        """Processor time of the counted steps before the first bare one."""
        self.early = 0
        self._steady: dict[Level, int] | None = None
        """Steps by level since then."""
        self._known: dict[Level, float] = {}
        """What a step of this level costs, where it has been measured."""
        self._rare_ns = 0.0
        self._allowance = 0.0
        self._expected = dict.fromkeys(Level, 0.0)
        self._owed = 0.0
        self._asked, self._due = 0, False
        self._debt = 0.0
        self._repay = 0.0
        self._glance_every = ALIGNED
        self._whole = 0
        self._stretches = 0
        self._since_reference = 0
        self._woken = 0

    def look_soon(self) -> None:
        """Something new takes part in the training: the next step is looked at in full, unless only the sentinel may look."""
        if self.budget and self._asked < MOST_ASKED:
            self._asked += 1
            self._due = True

    # -- what happened ---------------------------------------------------------------------------

    def finish_step(
        self, wall_ns: float, cost_ns: float, *, cpu_ns: float | Lapse | None = None, counted: bool = True
    ) -> Level:
        """Accounts for the step that ended and decides the level of the next.

        `cost_ns` is what was timed of Tensonde's own. `counted` is False for steps whose time says nothing (the first
        one, one with a stop in it).
        """
        level = self.level
        self._took(level, 1)
        self._since_reference += 1
        if counted:
            cpu = wall_ns if cpu_ns is None else cpu_ns
            bare = max(wall_ns - cost_ns, 0.1 * wall_ns, 1.0)  # an estimated cost may exceed what was measured
            self.bare_ns += bare
            self.cost_ns += cost_ns
            self.counted += 1
            if self._steady is None:
                self.early_ns += cpu if isinstance(cpu, float | int) else wall_ns
                self.early += 1
            self.costs.step(level, cpu)
            charge = self._known.get(level) or UNSEEN * cost_ns
            known = self._expected[level]
            self._expected[level] = charge if known == 0 else known + 0.2 * (charge - known)
            if self.budget:
                self._owed = 0.0 if level is Level.FULL else self._owed + OWED * self.budget * bare
                self._allowance += self.budget * max(wall_ns - charge, 0.1 * wall_ns) - charge
                # A long quiet stretch must not pay for a long loud one.
                self._allowance = min(self._allowance, 4 * max(self._expected[Level.FULL], self.budget * bare))
                if not self.resting and self._certain():
                    self._begin_to_rest()
        self.level = self._next()
        return self.level

    def rested(
        self, steps: int, wall_ns: float, cpu_ns: float | Lapse, *, first: int = 0, first_ns: float | Lapse = 0.0
    ) -> Level:
        """`steps` ran without Tensonde, the `first` of them in `first_ns`. Decides the level of the next."""
        if self._steady is None:
            self._steady = dict.fromkeys(Level, 0)
        self._took(Level.REST, steps)
        self.bare_ns += wall_ns
        self.counted += steps
        self.costs.rested(steps, cpu_ns, first=first, first_ns=first_ns, long=self._long and first > 0)
        self._long = False
        self._stretches += 1
        if self._stretches % REPLAN == 0 or self._stretches in (4, 8):
            self._plan()
        self.level = self._next()
        return self.level

    def tail(self, cpu_ns: float | Lapse) -> None:
        """What the step that was looked at last has cost since it ended."""
        self.costs.more(cpu_ns)

    def rare(self, ns: float) -> None:
        """Work beside the steps, such as writing, was timed as a whole; it is in no step's time."""
        if self._steady is not None:
            self._rare_ns += ns

    def may_wake(self) -> bool:
        """An evaluation begins between bare steps: whether to observe it."""
        if self._woken >= MOST_WOKEN and self._debt > 0:
            return False
        self._woken += 1
        self._debt += self._cost(Level.SENTINEL)
        return True

    def _took(self, level: Level, steps: int) -> None:
        self.taken[level] += steps
        self.steps += steps
        self._debt = max(self._debt - steps * self._repay, 0.0)
        if self._steady is not None:
            self._steady[level] += steps

    # -- what follows ----------------------------------------------------------------------------

    def _next(self) -> Level:
        if self.budget is None:
            return Level.FULL
        if self.budget == 0:
            if self.has_watched:
                return Level.WATCHED
            glances = self.may_rest and self._costly() and self.steps % NOTED_EVERY > 1
            return Level.GLANCE if glances else Level.SENTINEL
        if self._due:
            self._due = False
            return Level.FULL
        if self.may_rest:
            if self.resting:
                return self._cycle()
            if self._reference_due():
                self._since_reference = 0
                if self._bare < SHORT_NS and self._long_due():
                    return self._rest_long(GLANCE_EVERY)
                return self._rest(max(2, int(10e6 / self._bare)))
        if self._owed >= self._expected[Level.FULL] > 0:
            return Level.FULL
        for level in (Level.FULL, Level.WATCHED) if self.has_watched else (Level.FULL,):
            if self._allowance >= self._expected[level] - self._expected[Level.SENTINEL]:
                return level
        return Level.SENTINEL

    @property
    def _bare(self) -> float:
        return self.costs.bare or max(1.0, self.bare_ns / max(1, self.counted))

    def _bounded(self, steps: int) -> int:
        return max(1, min(steps, 16 if not self.resting else steps, int(POLL_NS / self._bare)))

    def _reference_due(self) -> bool:
        if self.counted < FEW or (self.counted < PATIENCE and self.bare_ns + self.cost_ns < LONG_NS):
            return False
        return self._since_reference >= REFERENCE_EVERY[self._stretches >= 8]

    def _costly(self) -> bool:
        """The sentinel takes more of these steps than a user should notice, and their start has been seen whole."""
        return self.counted >= PATIENCE and self._expected[Level.SENTINEL] > NOTICED * self.bare_ns / self.counted

    def _certain(self) -> bool:
        """What was timed alone is so much more than the budget that nothing need be measured."""
        if self.counted < FEW or not self.budget or (
            self.counted < PATIENCE and self.bare_ns + self.cost_ns < CERTAIN_NS
        ):  # fmt: skip
            return False
        timed = self._expected[Level.SENTINEL] or self._expected[Level.FULL]
        patient = self.counted >= PATIENCE
        return timed > (UNSEEN if patient else 2 * UNSEEN) * self.budget * self.bare_ns / self.counted

    def _begin_to_rest(self) -> None:
        self.resting = True
        self._debt = 0.0
        self._plan()

    def _cycle(self) -> Level:
        """The next step of a training that rests."""
        if self._whole:
            self._whole -= 1
            return Level.SENTINEL
        if self._debt <= 0 and self.steps % ALIGNED == 0 and self._stretches >= FEW // 2:
            self._whole = 1
            self._debt = self._cost(Level.FULL) + self._cost(Level.SENTINEL)
            return Level.FULL
        ahead = -self.steps % self._glance_every
        if ahead == 0:
            return Level.GLANCE
        room = -self.steps % GLANCE_EVERY
        return self._rest_long(room) if room >= LONG_STEPS and self._long_due() else self._rest(ahead)

    def _long_due(self) -> bool:
        return self._stretches % LONG_EVERY < (4 if self._stretches < LONG_EVERY else 1)

    def _rest_long(self, most: int) -> Level:
        self._long = True
        self.stretch = min(max(LONG_STEPS, int(POLL_NS / self._bare)), most)
        self.cold = self.stretch // 2
        return Level.REST

    def _rest(self, steps: int) -> Level:
        self._long = False
        self.stretch = self._bounded(steps)
        self.cold = COLD if self.stretch >= 2 * COLD else 0
        return Level.REST

    def _plan(self) -> None:
        """Looks up what is known of costs."""
        if not self.budget:
            return
        bare = self._bare
        sentinel = self.costs.of(Level.SENTINEL)
        if sentinel is not None and not self.resting:
            self.resting = sentinel.ns - sentinel.error > self.budget * bare
        elif sentinel is not None and self._stretches >= 4 * REPLAN:
            self.resting = sentinel.ns + 2 * sentinel.error > 0.5 * self.budget * bare
        self._known = {level: cost.ns for level in Level if (cost := self.costs.of(level)) is not None}
        if not self.resting:
            return
        rare = self._rare_ns / max(1, sum((self._steady or {}).values()))
        left = max(SPENT * self.budget * bare - self.counter_ns - rare, OWED * self.budget * bare)
        glance = self._cost(Level.GLANCE) or 0.1 * self._cost(Level.SENTINEL)
        every = 2
        while every < GLANCE_EVERY and glance / every > 0.5 * left:
            every *= 2
        self._glance_every = every
        self._repay = max(left - glance / every, 0.25 * left)

    def _cost(self, level: Level) -> float:
        return self._known.get(level, self._expected[level])

    # -- what it costs ---------------------------------------------------------------------------

    @property
    def measured(self) -> tuple[float, float] | None:
        """Step time with Tensonde over step time without it, since the first bare step, and the standard error of that; None
        where too few steps were bare."""
        bare, taken = self.costs.bare, self._steady
        if not bare or taken is None:
            return None
        total = self._rare_ns + self.counter_ns * taken[Level.REST]
        error = 0.0
        for level, steps in taken.items():
            if level is Level.REST or not steps:
                continue
            cost = self.costs.of(level)
            if cost is None and steps > 0.02 * sum(taken.values()):
                return None
            total += steps * (cost.ns if cost is not None else self._expected[level])
            error = hypot(error, steps * (cost.error if cost is not None else self._expected[level]))
        whole = bare * sum(taken.values())
        return 1.0 + total / whole, error / whole

    @property
    def ratio(self) -> float:
        """Step time with Tensonde over step time without it: measured, else estimated from what was timed."""
        found = self.measured
        if found is not None:
            return found[0]
        return 1.0 + UNSEEN * self.cost_ns / self.bare_ns if self.bare_ns else 1.0
