"""Stretches of steps in which Tensonde is not in the training's way: nothing of it runs but a counter of optimizer steps.

`Policy` says when and how long. Steps are counted as always; everything else that was noted about a training is made good
where the stretch ends. A stretch ends early when somebody asks for a pause or changes what is watched, and where an evaluation begins.
"""

from __future__ import annotations

import time
from threading import get_ident
from typing import TYPE_CHECKING, Any

from torch import is_grad_enabled
from torch.optim import Optimizer

from tensonde.adapters.torch.observers.origins import KNOWN
from tensonde.adapters.torch.seams.function_mode import unseen
from tensonde.adapters.torch.seams.lifted import PATCHES

if TYPE_CHECKING:
    from tensonde.adapters.torch.run.eager import Eager

MOST_EVALUATED = 64
"""Calls of models that are looked at in an evaluation amid a rest."""


class Rest:
    """Belongs to the training thread."""

    def __init__(self, eager: Eager) -> None:
        self._eager = eager
        self._steps = eager.session.steps
        self._gate = eager.session.gate
        self._thread = get_ident()
        self.asleep = False
        self._only: int | None = None
        """The only optimizer, by its id: its steps are those of the training."""
        self._first = self._due = self._last = 0
        self._tally: dict[int, tuple[Optimizer, int]] = {}
        """Steps of each optimizer that the facts have not been told of yet."""
        self._stepper: Optimizer | None = None
        self._alone = 0
        """The same of the only one."""
        self._to_evaluate = 0
        self.looked_at = 0
        """Up to here, every step or all that it left in the parameters has been seen."""
        self._told = False

    # -- a stretch -------------------------------------------------------------------------------

    def begin(self, steps: int, cold: int) -> None:
        """Out of the way for so many steps, of which the first are timed apart."""
        if not self._eager.session.policy.counter_ns:
            self._eager.session.policy.counter_ns = _calibrated()
        self._first = self._steps.step
        self._last = self._first + steps
        self._due = self._first + cold if 0 < cold < steps else self._last
        self._only = self._steps.only
        self.asleep = PATCHES.asleep = True
        PATCHES.count = self._count
        self._eager.session.rest_begins()

    def _count(self, optimizer: Optimizer) -> None:
        """An optimizer has stepped, in any thread."""
        if self._thread == get_ident():
            if id(optimizer) != self._only:
                self.stepped(optimizer)
                return
            eager, steps = self._eager, self._steps
            eager.optimizer_steps += 1
            self._alone += 1
            self._stepper = optimizer
            eager.step = steps.step = step = steps.step + 1
            if step >= self._due or self._gate.asked:
                self._end()

    def stepped(self, optimizer: Optimizer, *, skipped: bool = False) -> None:
        """The same where there are several optimizers. `skipped`: by its scaler."""
        eager, steps, key = self._eager, self._steps, id(optimizer)
        if not skipped:
            eager.optimizer_steps += 1
            known = self._tally.get(key)
            self._tally[key] = (optimizer, known[1] + 1 if known is not None else 1)
        if steps.before_optimizer(key):
            steps.advance()
        if steps.after_optimizer(key):
            steps.advance()
            eager.step = step = steps.step
            if step >= self._due or self._gate.asked:
                self._end()

    def _end(self) -> None:
        eager = self._eager
        if self._due < min(self._last, self._steps.step + 1) and not self._gate.asked and self._due:
            eager.session.settled(self._steps.step - self._first)
            self._due = self._last
            return
        self.asleep = PATCHES.asleep = False
        try:
            with unseen():
                eager.session.rested(self._steps.step - self._first)
                eager.session.on_step()
                eager.choose()
        except Exception as problem:
            eager.session.guard.contain("ending a rest", problem)
            eager.wake()

    def end(self) -> None:
        """At once, wherever the step is; the rest of it is seen."""
        eager = self._eager
        if self.asleep:
            self.asleep = PATCHES.asleep = False
            eager.session.rested(self._steps.step - self._first)
        if eager.light:
            eager.session.uncounted()
            eager.facts.sequence.blind = True
            eager.wake()

    def soon(self) -> None:
        """With the step that runs now."""
        self._due = 0

    def settle(self) -> None:
        """Tells of the optimizer steps that were counted."""
        stepper, alone = self._stepper, self._alone
        tally, self._tally, self._stepper, self._alone = self._tally, {}, None, 0
        if stepper is not None:
            self._eager.facts.optimizer_stepped(stepper, alone)
        for optimizer, steps in tally.values():
            self._eager.facts.optimizer_stepped(optimizer, steps)

    def tally(self, optimizer: Optimizer) -> None:
        """It has stepped, in a step that was glanced at."""
        known = self._tally.get(id(optimizer))
        self._tally[id(optimizer)] = (optimizer, known[1] + 1 if known is not None else 1)

    # -- evaluations -----------------------------------------------------------------------------

    def evaluation_begins(self) -> None:
        """A model is put into eval mode, or another loader is iterated."""
        eager = self._eager
        if eager.light and not eager.stack and eager.session.policy.may_wake():
            self.end()
            self._to_evaluate = MOST_EVALUATED

    def root_called(self) -> None:
        """Of a long evaluation that a stretch was ended for, the first calls are enough."""
        if self._to_evaluate:
            self._to_evaluate -= 1
            if not self._to_evaluate and not is_grad_enabled() and self._eager.tracer is None:
                self._eager.doze()

    # -- what was not seen -----------------------------------------------------------------------

    def tell(self, step: int) -> None:
        """A value of this step is not finite: says which steps were not looked at before, once."""
        if not self._told:
            self._told = True
            if self.looked_at < step:
                self._eager.session.note("unseen", step=step, first=self.looked_at, last=step - 1)

    def last_look(self) -> None:
        """The program ends amid a stretch: what its steps have left in the parameters is looked at."""
        eager = self._eager
        if not self.asleep or self._steps.step <= self.looked_at:
            return
        self.asleep = PATCHES.asleep = False
        eager.step = eager.block.step = self._steps.step - 1
        for optimizer in KNOWN.mine():
            eager.parameters.before(optimizer, closure=False)
            eager.parameters.after(optimizer, closure=False)
        eager.step = eager.block.step = self._steps.step


def _calibrated() -> float:
    """What counting a step takes, in nanoseconds, with the wrappers and hooks that are asked on the way."""

    class Nobody:
        optimizer_steps = step = alone = 0
        stepper: Any = None
        asked = False

    nobody = Nobody()

    def asked(optimizer: Any, args: Any = None, kwargs: Any = None) -> None:
        if nobody.asked:
            return

    def count(optimizer: Any) -> None:
        if get_ident() and id(optimizer):
            nobody.optimizer_steps += 1
            nobody.alone += 1
            nobody.stepper = optimizer
            nobody.step = step = nobody.step + 1
            if step < 0 or nobody.asked:
                return

    taken = []
    for _ in range(5):
        began = time.perf_counter_ns()
        for _ in range(40):
            for _ in range(4):  # a loss function, zero_grad (two), and the hook before the step
                asked(None)
            count(None)
        taken.append((time.perf_counter_ns() - began) / 40)
    return 2 * min(taken)
