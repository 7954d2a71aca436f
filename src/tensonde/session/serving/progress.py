"""How far the training is, and how fast."""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from tensonde.model.moment import Phase
from tensonde.protocol.messages import State
from tensonde.session.inspector import Inspector
from tensonde.store.writer import now as written_now

A_MOMENT = 0.5
"""Seconds in one collective, from which on it is worth telling."""


class Progress:
    def __init__(self, inspector: Inspector, epoch: Callable[[], int]) -> None:
        self._inspector, self._session, self._epoch = inspector, inspector.session, epoch
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
            together=self.together(), waiting=self._waiting(), memory=resident_bytes(),
        )  # fmt: skip

    def together(self) -> dict[str, Any] | None:
        found = self._inspector.together()
        return asdict(found) if found is not None else None

    def _waiting(self) -> dict[str, Any] | None:
        call = self._session.collectives.running
        if call is None or time.time() - call.began < A_MOMENT:
            return None
        line = call.kind.source
        return {"what": str(call), "line": str(line) if line is not None else None, "since": call.began}


def resident_bytes() -> int | None:
    """Rounded, so that it is no news at every look."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * mmap.PAGESIZE >> 20 << 20
    except (OSError, ValueError, IndexError):
        return None
