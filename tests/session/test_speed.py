"""The speed that is shown is that of the training: time at a stop is not counted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tensonde.session.serving import progress
from tensonde.session.serving.progress import Progress


def test_time_at_a_stop_says_nothing_about_the_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    session: Any = SimpleNamespace(
        steps=SimpleNamespace(step=0), block=SimpleNamespace(phase=0), policy=SimpleNamespace(ratio=1.0),
        collectives=SimpleNamespace(running=None),
    )  # fmt: skip
    inspector: Any = SimpleNamespace(session=session, together=lambda: None)
    seen = Progress(inspector, lambda: 0)
    for _ in range(20):
        session.steps.step += 1
        clock[0] += 0.1 + 60  # a step of a tenth of a second, and a minute at a stop
        seen.stopped += 60
        speed = seen.look().steps_per_second
    assert speed == pytest.approx(10)
