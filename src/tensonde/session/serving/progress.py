"""How far the training is, and how fast."""

from __future__ import annotations

import time
from collections.abc import Callable

from tensonde.model.moment import Phase
from tensonde.protocol.messages import State
from tensonde.session.session import Session
from tensonde.store.writer import now as written_now


class Progress:
    def __init__(self, session: Session, epoch: Callable[[], int]) -> None:
        self._session, self._epoch = session, epoch
        self._moved = (0, time.monotonic(), "")
        self.stopped = 0.0
        """Seconds spent at stops, which say nothing about the speed."""
        self.speed: float | None = None
        """Steps a second, smoothed."""

    def look(self) -> State:
        session = self._session
        step, now = session.steps.step, time.monotonic() - self.stopped
        last, since, at = self._moved
        if step != last:
            if now - since > 0:
                recent = (step - last) / (now - since)
                self.speed = recent if self.speed is None else 0.7 * self.speed + 0.3 * recent
            at = written_now()
            self._moved = (step, now, at)
        return State(
            step=step, phase=str(Phase(session.block.phase)), epoch=self._epoch(), steps_per_second=self.speed,
            overhead=round(session.policy.ratio - 1, 4), last_step_at=at or None,
        )  # fmt: skip
