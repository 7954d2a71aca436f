"""Stretches of bare steps: nothing is looked at, and steps are counted by the optimizer alone (see `session/policy.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensonde.session.policy import Level

if TYPE_CHECKING:
    from tensonde.adapters.mindspore.run.pynative import PyNative


class Rest:
    def __init__(self, training: PyNative) -> None:
        self._training = training
        self.asleep = False
        self._first = self._due = self._last = 0

    def begin(self, steps: int, cold: int) -> None:
        session = self._training.session
        self._first = session.steps.step
        self._last = self._first + steps
        self._due = self._first + cold if 0 < cold < steps else self._last
        self.asleep = True
        session.rest_begins()

    def stepped(self, key: int) -> None:
        """An optimizer has stepped."""
        training, steps = self._training, self._training.session.steps
        if steps.before_optimizer(key):
            steps.advance()
        if not steps.after_optimizer(key):
            return
        steps.advance()
        training.step = steps.step
        if steps.step >= self._due or training.session.gate.asked:
            self._end()

    def _end(self) -> None:
        session = self._training.session
        if self._due < min(self._last, session.steps.step + 1) and not session.gate.asked:
            session.settled(session.steps.step - self._first)
            self._due = self._last
            return
        self.wake()
        session.on_step()
        self._training.stepping.choose()

    def wake(self) -> None:
        """At once, wherever the step is; the rest of it is seen."""
        if self.asleep:
            self.asleep = False
            session = self._training.session
            session.rested(session.steps.step - self._first)
            self._training.block.step = session.steps.step
            session.policy.level = max(session.policy.level, Level.SENTINEL)
