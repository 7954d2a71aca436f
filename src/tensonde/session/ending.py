"""Endings that no Python code sees: a crash in native code, a signal, `os._exit`, `os.exec*`.

What is known then must be on disk before: which step it is and what was called last (`store/whereabouts.py`). The stack of a
crash is written by `faulthandler`, into the recording, where the program does not use faulthandler itself. What the program
can see of faulthandler, its settings and its output, stays as it is without Tensonde.
"""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import logging
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from tensonde.store.ending import FAULT
from tensonde.store.whereabouts import WhereaboutsFile

log = logging.getLogger("tensonde.session")

_DEADLY = tuple(number for name in ("SIGTERM", "SIGHUP") if (number := getattr(signal, name, None)) is not None)
"""Signals that end a program which has no handler for them; faulthandler's own five come on top."""

_enable, _disable, _is_enabled = faulthandler.enable, faulthandler.disable, faulthandler.is_enabled
_file: BinaryIO | None = None
_ours = False
"""faulthandler is enabled because we enabled it."""
_whereabouts: WhereaboutsFile | None = None
_folder = ""
_patched = False


def prepare_for_the_end(folder: Path, whereabouts: WhereaboutsFile) -> None:
    """For this process and the recording in `folder`, from now on. Never raises."""
    global _whereabouts, _file, _folder
    _whereabouts, _folder = whereabouts, str(folder.absolute())
    try:
        _patch()
        if _is_enabled() and not _ours:
            return  # the program's own choice, made before its training began
        _file = open(folder / FAULT, "wb", buffering=0)  # noqa: SIM115  it must be open when the process dies
        _write_here()
        for number in _DEADLY:
            if signal.getsignal(number) is signal.SIG_DFL:
                faulthandler.register(number, file=_file, chain=True)
    except (OSError, ValueError, RuntimeError, AttributeError) as problem:
        log.debug("a crash will leave no stack in the recording: %s", problem)


def _write_here() -> None:
    global _ours
    if _file is not None:
        _enable(file=_file)
        _ours = True


def _patch() -> None:
    global _patched
    if _patched:
        return
    _patched = True
    for name, replacement in (
        ("enable", _users_enable), ("disable", _users_disable), ("is_enabled", _users_is_enabled),
    ):  # fmt: skip
        setattr(faulthandler, name, replacement)
    os._exit = _telling(os._exit)
    os.kill = _telling_of_itself(os.kill)
    os.execv = _telling(os.execv)
    os.execve = _telling(os.execve)
    os.closerange = _sparing(os.closerange)
    os.register_at_fork(after_in_child=_forked)


@functools.wraps(_enable)
def _users_enable(*args: Any, **kwargs: Any) -> None:
    global _ours
    _enable(*args, **kwargs)
    _ours = False


@functools.wraps(_disable)
def _users_disable() -> bool:
    if _ours:
        return False
    disable: Callable[[], Any] = _disable
    was_enabled = bool(disable())
    _write_here()
    return was_enabled


@functools.wraps(_is_enabled)
def _users_is_enabled() -> bool:
    return _is_enabled() and not _ours


def _forked() -> None:
    """The file is the parent's."""
    global _ours, _file, _whereabouts, _folder
    if _file is not None:
        for number in _DEADLY:
            faulthandler.unregister(number)
        if _ours:
            _disable()
    _ours, _file, _whereabouts, _folder = False, None, None, ""


def _telling(leave: Callable[..., Any]) -> Any:
    """Notes where the program leaves. Where it does not, after all (no such program to go over to), that is taken back."""

    @functools.wraps(leave)
    def leaving(*args: Any, **kwargs: Any) -> Any:
        noted = _whereabouts
        frame = sys._getframe(1)
        if str(frame.f_globals.get("__name__", "")).startswith("multiprocessing."):
            noted = None  # how every forked child ends
        if noted is not None:
            while (
                frame.f_code.co_filename in (os.__file__, __file__) and frame.f_back is not None
            ):  # os.execl and its like
                frame = frame.f_back
            shown = repr(args[0]) if args else "…"
            noted.left(f"os.{leave.__name__}({shown})", os.path.abspath(frame.f_code.co_filename), frame.f_lineno)
        try:
            return leave(*args, **kwargs)
        finally:
            if noted is not None:
                noted.left("")

    return leaving


def _telling_of_itself(kill: Callable[[int, int], None]) -> Any:
    """The same for a program that kills itself, which no handler could note."""
    telling = _telling(kill)

    @functools.wraps(kill)
    def killing(pid: int, number: int, /) -> None:
        (telling if pid == os.getpid() and number == signal.SIGKILL else kill)(pid, number)

    return killing


def _sparing(closerange: Callable[[int, int], None]) -> Any:
    """A program that closes all files but its own few means what it has inherited. The next file that it opens would get the
    number of one of ours, and what we write."""

    @functools.wraps(closerange)
    def closing(low: int, high: int, /) -> None:
        for ours in _files_of_the_recording():
            if low <= ours < high:
                closerange(low, ours)
                low = ours + 1
        closerange(low, high)

    return closing


def _files_of_the_recording() -> list[int]:
    """By the system's own list (Linux)."""
    found = []
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc/self/fd") if _folder else ():
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/self/fd/{name}").startswith(_folder + os.sep):
                    found.append(int(name))
    return sorted(found)
