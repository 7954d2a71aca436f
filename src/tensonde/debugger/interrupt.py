"""Ctrl-C pauses the training at the next permitted point; twice in two seconds, it interrupts."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

AGAIN_SECONDS = 2.0


class Interrupt:
    """`pause` and `say` are called from the signal.

    Does nothing outside the main thread, or if the script has its own handler.
    """

    def __init__(self, pause: Callable[[], None], say: Callable[[str], None]) -> None:
        self._pause, self._say = pause, say
        self._previous: Any = None
        self._installed = False
        self._last = float("-inf")
        self._talking = False

    def install(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._previous = signal.signal(signal.SIGINT, self._on_signal)
            self._installed = True

    def remove(self) -> None:
        if self._installed and signal.getsignal(signal.SIGINT) == self._on_signal:
            signal.signal(signal.SIGINT, self._previous)
        self._installed = False

    @contextmanager
    def talking(self) -> Iterator[None]:
        """While the user is at the prompt."""
        self._talking = True
        try:
            yield
        finally:
            self._talking = False
            self._last = float("-inf")
            self._reinstate()

    def _reinstate(self) -> None:
        """Prompts and pdb may leave Python's own handler behind."""
        if self._installed and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._installed = False
            self.install()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._talking or now - self._last < AGAIN_SECONDS:
            raise KeyboardInterrupt
        self._last = now
        self._say("pausing at the next permitted point; Ctrl-C again within 2 seconds interrupts the program")
        self._pause()
