"""The line under a cell that trains: step, loss, speed and overhead."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from tensonde.model.site import Site
from tensonde.model.watchpoint import Hit

EVERY = 0.5


class Losses:
    """The writer's listener (`store.writer.Listener`): keeps the latest loss."""

    def __init__(self) -> None:
        self.latest: float | None = None
        self.hits = 0

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        if "loss" in values:
            self.latest = float(values["loss"])

    def hit(self, hit: Hit) -> None:
        self.hits += 1

    def site(self, site: Site) -> None:
        pass

    def digests(self, rows: np.ndarray[Any, Any], first: int) -> None:
        pass

    def event(self, event: dict[str, Any]) -> None:
        pass


class LiveLine:
    """A thread of its own looks at the training twice per second; it changes nothing there."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, training: Any) -> None:
        from IPython.display import display

        losses = Losses()
        if training.session.writer.listener is None:
            training.session.writer.listener = losses
        handle = display(_Text("tensonde: training"), display_id=True)
        self._thread = threading.Thread(target=self._show, args=(training.session, losses, handle), daemon=True)
        self._thread.start()

    def _show(self, session: Any, losses: Losses, handle: Any) -> None:
        began, first = time.monotonic(), session.steps.step
        while True:
            over = self._ended.wait(EVERY)
            try:
                handle.update(_Text(_line(session, losses, time.monotonic() - began, first)))
            except Exception:  # the notebook has gone
                return
            if over:
                return

    def end(self) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join(5)


def _line(session: Any, losses: Losses, seconds: float, first: int) -> str:
    step = session.steps.step
    parts = [f"step {step}"]
    if losses.latest is not None:
        parts.append(f"loss {losses.latest:.6g}")
    if seconds > EVERY and step > first:
        parts.append(f"{(step - first) / seconds:.3g} steps per second")
    parts.append(f"overhead about {max(0.0, session.policy.ratio - 1):.0%}")
    if losses.hits:
        parts.append(f"{losses.hits} hits")
    return "tensonde: " + ", ".join(parts)


class _Text:
    """Shown as it is, without quotes."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text
