"""Exceptions that end a training but are caught before `sys.excepthook`: those of a process that a launcher started.

The caller that closes the session decides what to do with them.
"""

from __future__ import annotations

from collections.abc import Callable

_note: Callable[[BaseException], None] | None = None


def on_failure(note: Callable[[BaseException], None]) -> None:
    """`note` must not raise."""
    global _note
    _note = note


def failed(problem: BaseException) -> None:
    """The training of this process ends by it, as far as the training is concerned."""
    if _note is not None:
        _note(problem)
