"""Stretches of steps in which Tensonde is not in the training's way: nothing of it runs but a counter of optimizer steps.

`Policy` says when and how long. Steps are counted as always; everything else that was noted about a training is made good
where the stretch ends. A stretch ends early when a pause is requested, when watchpoints change, and where an evaluation begins.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import get_ident
from typing import Any

from torch import is_grad_enabled
from torch.optim import Optimizer

from tensonde.adapters.torch.digests.parameters import ParameterDigests
from tensonde.adapters.torch.digests.tensors import Digests
from tensonde.adapters.torch.observers.facts import Facts
from tensonde.adapters.torch.observers.origins import KNOWN
from tensonde.adapters.torch.run.state import RunState
from tensonde.adapters.torch.seams.function_mode import unseen
from tensonde.adapters.torch.seams.lifted import PATCHES

MOST_EVALUATED = 64
"""Model calls that are observed in an evaluation during a rest."""


class Rest:
    """Belongs to the training thread."""

    def __init__(self, state: RunState, digests: Digests, parameters: ParameterDigests, facts: Facts) -> None:
        self._state, self._digests, self._parameters, self._facts = state, digests, parameters, facts
        self.ended: Callable[[], None] = lambda: None
        """Called where a stretch ends: the next step is looked at, or another stretch begins."""
        self.woken: Callable[[], None] = lambda: None
        """Called where a stretch ends within a step: everything is put back at once."""
        self.enough: Callable[[], None] = lambda: None
        """Called where enough of an evaluation was seen."""
        self._steps = state.session.steps
        self._gate = state.session.gate
        self._thread = get_ident()
        self.asleep = False
        self._only: int | None = None
        """The only optimizer, by its id: its steps are those of the training."""
        self._first = self._due = self._last = 0
        self._tally: dict[int, tuple[Optimizer, int]] = {}
        """Steps of each optimizer that the facts do not count yet."""
        self._stepper: Optimizer | None = None
        self._alone = 0
        """The same of the only one."""
        self._to_evaluate = 0
        self.looked_at = 0
        """Up to here, every step or all that it left in the parameters has been seen."""
        self._told = False

    # -- a stretch -------------------------------------------------------------------------------

    def begin(self, steps: int, cold: int) -> None:
        """Out of the way for this many steps; the first ones are timed apart."""
        if not self._state.session.policy.counter_ns:
            self._state.session.policy.counter_ns = _calibrated()
        self._first = self._steps.step
        self._last = self._first + steps
        self._due = self._first + cold if 0 < cold < steps else self._last
        self._only = self._steps.only
        self.asleep = PATCHES.asleep = True
        PATCHES.count = self._count
        self._state.session.rest_begins()

    def _count(self, optimizer: Optimizer) -> None:
        """An optimizer has stepped, in any thread."""
        if self._thread == get_ident():
            if id(optimizer) != self._only:
                self.stepped(optimizer)
                return
            state, steps = self._state, self._steps
            state.optimizer_steps += 1
            self._alone += 1
            self._stepper = optimizer
            state.step = steps.step = step = steps.step + 1
            if self._digests.device.pending:
                self._listen()
            if step >= self._due or self._gate.asked:
                self._end()

    def _listen(self) -> None:
        """A device has yet to tell what came of the last look."""
        try:
            self._digests.poll()
        except Exception as problem:
            self._state.session.guard.contain("waiting for digests", problem)

    def stepped(self, optimizer: Optimizer, *, skipped: bool = False) -> None:
        """The same where there are several optimizers. `skipped`: by its scaler."""
        state, steps, key = self._state, self._steps, id(optimizer)
        if not skipped:
            state.optimizer_steps += 1
            known = self._tally.get(key)
            self._tally[key] = (optimizer, known[1] + 1 if known is not None else 1)
        if steps.before_optimizer(key):
            steps.advance()
        if steps.after_optimizer(key):
            steps.advance()
            state.step = step = steps.step
            if step >= self._due or self._gate.asked:
                self._end()

    def _end(self) -> None:
        state = self._state
        if self._due < min(self._last, self._steps.step + 1) and not self._gate.asked and self._due:
            state.session.settled(self._steps.step - self._first)
            self._due = self._last
            return
        self.asleep = PATCHES.asleep = False
        try:
            with unseen():
                state.session.rested(self._steps.step - self._first)
                state.session.on_step()
                self.ended()
        except Exception as problem:
            state.session.guard.contain("ending a rest", problem)
            self.woken()

    def end(self) -> None:
        """At once, wherever the step is; the rest of it is seen."""
        state = self._state
        if self.asleep:
            self.asleep = PATCHES.asleep = False
            state.session.rested(self._steps.step - self._first)
        if state.light:
            state.session.uncounted()
            self._facts.sequence.blind = True
            self.woken()

    def soon(self) -> None:
        """With the step that runs now."""
        self._due = 0

    def settle(self) -> None:
        """Tells of the optimizer steps that were counted."""
        stepper, alone = self._stepper, self._alone
        tally, self._tally, self._stepper, self._alone = self._tally, {}, None, 0
        if stepper is not None:
            self._facts.optimizer_stepped(stepper, alone)
        for optimizer, steps in tally.values():
            self._facts.optimizer_stepped(optimizer, steps)

    def tally(self, optimizer: Optimizer) -> None:
        """It has stepped, in a step that was glanced at."""
        known = self._tally.get(id(optimizer))
        self._tally[id(optimizer)] = (optimizer, known[1] + 1 if known is not None else 1)

    # -- evaluations -----------------------------------------------------------------------------

    def evaluation_begins(self) -> None:
        """A model is put into eval mode, or another loader is iterated."""
        state = self._state
        if state.light and not state.stack and state.session.policy.may_wake():
            self.end()
            self._to_evaluate = MOST_EVALUATED

    def root_called(self) -> None:
        """Of a long evaluation that a stretch was ended for, the first calls are enough."""
        if self._to_evaluate:
            self._to_evaluate -= 1
            if not self._to_evaluate and not is_grad_enabled():
                self.enough()

    # -- what was not seen -----------------------------------------------------------------------

    def tell(self, step: int, looked_at: int | None = None) -> None:
        """A value of this step is not finite: says which steps were not looked at before, once."""
        if not self._told:
            self._told = True
            first = self.looked_at if looked_at is None else looked_at
            if first < step:
                self._state.session.note("unseen", step=step, first=first, last=step - 1)

    def last_look(self) -> None:
        """The program ends within a stretch: the parameters are looked at once more."""
        state = self._state
        if not self.asleep or self._steps.step <= self.looked_at:
            return
        self.asleep = PATCHES.asleep = False
        state.step = state.session.block.step = self._steps.step - 1
        for optimizer in KNOWN.mine():
            self._parameters.before(optimizer, closure=False)
            self._parameters.after(optimizer, closure=False)
        state.step = state.session.block.step = self._steps.step


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
