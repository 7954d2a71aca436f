"""Warnings name the line that they name without Tensonde, and come as often.

A warning blames the caller of the function that gives it, and is shown once per line. If Tensonde passes the call on, that line is ours
for every caller: the message names a file of Tensonde's, and the same warning of another line is lost. So a warning that blames
Tensonde is moved to the frame that made the call, and Python forgets that it was shown for our line. Warnings of code that
Tensonde runs again are neither shown nor remembered.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import warnings
from collections.abc import Iterator
from types import FrameType
from typing import Any

from torch.overrides import handle_torch_function

from tensonde.adapters.torch import seams
from tensonde.program.frames import is_ours

_shown: Any = warnings._showwarnmsg  # type: ignore[attr-defined]
"""Python looks this function up whenever it shows a warning, and it heeds what a program has put in the place of `showwarning`."""


class _Here(threading.local):
    muted = False


_here = _Here()


def install() -> None:
    seams.put(warnings, "_showwarnmsg", _show, "move warnings from our lines to those of their callers")


@contextlib.contextmanager
def muted() -> Iterator[None]:
    """Warnings of this thread leave no trace. A change of the filters makes Python forget what it has shown, but not here."""
    before, _here.muted = _here.muted, True
    changed = getattr(warnings, "_filters_mutated", None)
    if changed is not None:
        warnings._filters_mutated = lambda: None  # type: ignore[attr-defined]
    try:
        yield
    finally:
        _here.muted = before
        if changed is not None:
            warnings._filters_mutated = changed  # type: ignore[attr-defined]


@functools.wraps(_shown)
def _show(message: Any) -> None:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and (frame.f_code.co_filename, frame.f_lineno) != (message.filename, message.lineno):
        frame = frame.f_back
    if frame is None:
        if not _here.muted:
            _shown(message)
    elif _here.muted:
        _forget(message, frame)
    elif not is_ours(frame.f_code) or _moved(message, frame):
        _shown(message)


def _forget(message: Any, frame: FrameType) -> list[int]:
    """Python no longer knows that it gave this warning here. Returns for what it knew: the line, the module (0), or nothing."""
    known = frame.f_globals.get("__warningregistry__", {})
    text, category = str(message.message), message.category
    return [line for line in (message.lineno, 0) if known.pop((text, category, line), None)]


def _moved(message: Any, frame: FrameType) -> bool:
    """The message blames the caller of our `frame` now. Whether it was not shown for that line yet."""
    caller = _caller(frame)
    once = _forget(message, frame)
    if caller is None:
        return True
    message.filename, message.lineno = caller.f_code.co_filename, caller.f_lineno
    if not once:
        return True
    ours, theirs = frame.f_globals["__warningregistry__"], caller.f_globals.setdefault("__warningregistry__", {})
    if theirs.get("version") != ours.get("version"):  # the filters have changed since
        theirs.clear()
        theirs["version"] = ours.get("version")
    keys = [(str(message.message), message.category, line and message.lineno) for line in once]
    known = any(theirs.get(key) for key in keys)
    theirs.update(dict.fromkeys(keys, True))
    return not known


def _caller(frame: FrameType | None) -> FrameType | None:
    while frame is not None:
        if is_ours(frame.f_code):
            frame = frame.f_back
        elif frame.f_code is handle_torch_function.__code__:
            function = frame.f_back  # which asked torch's function modes, and was called a second time by ours
            frame = function.f_back if function is not None else None
        else:
            break
    return frame
