"""Tells a signal that was sent to this process alone from one that its whole process group got.

Ctrl-C in a terminal, `timeout` and many schedulers signal the whole group, so that the program below us has the signal
already; passing it on would make it two, and the second one interrupts what the program does about the first. An IDE's stop
button and `kill PID` reach only us, and the program must be told. The kernel does not say which it was; a process that only
stands by in the same group does.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections import Counter
from collections.abc import Iterable

GRACE = 0.25
"""Seconds in which a signal to the group has reached all of it."""


class Bystander:
    """Lives until `close`, or until this process ends, however it ends."""

    def __init__(self, numbers: Iterable[signal.Signals]) -> None:
        self._numbers = tuple(numbers)
        self._seen: Counter[int] = Counter()
        ours, self._lifeline = os.pipe()
        self._heard, theirs = os.pipe()
        os.set_blocking(self._heard, False)
        held = signal.pthread_sigmask(signal.SIG_BLOCK, self._numbers)
        try:
            self._pid = os.fork()
            if self._pid == 0:
                self._stand_by(ours, theirs)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, held)
        os.close(ours)
        os.close(theirs)

    def _stand_by(self, lifeline: int, heard: int) -> None:
        """In the new process: every signal's number is written to the pipe, by Python itself, until the other end is gone."""
        try:
            os.close(self._lifeline)
            os.close(self._heard)
            os.set_blocking(heard, False)
            for number in self._numbers:
                signal.signal(number, lambda number, frame: None)
            signal.set_wakeup_fd(heard, warn_on_full_buffer=False)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, self._numbers)
            for stream in {0, 1, 2} - {
                lifeline,
                heard,
            }:  # their readers wait for the program's end, not for ours
                with contextlib.suppress(OSError):
                    os.close(stream)
            while os.read(lifeline, 1):
                pass
        finally:
            os._exit(0)

    def saw(self, number: int) -> bool:
        """Whether the group got this signal, too; each one that it got counts once."""
        until = time.monotonic() + GRACE
        while True:
            self._listen()
            if self._seen[number]:
                self._seen[number] -= 1
                return True
            left = until - time.monotonic()
            if left <= 0 or self._lifeline < 0:
                return False
            select.select([self._heard], [], [], left)

    def _listen(self) -> None:
        try:
            self._seen.update(os.read(self._heard, 4096))
        except OSError:
            pass

    def close(self) -> None:
        os.close(self._lifeline)
        os.close(self._heard)
        self._lifeline = -1
        try:
            os.waitpid(self._pid, 0)
        except ChildProcessError:
            pass
