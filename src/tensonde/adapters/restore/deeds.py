"""What a program does to the world around it: files, variables of the environment, processes, threads, connections.

None of it can be undone. Python announces all of it as audit events, before it is done: while a step is run again, that ends the run.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from threading import get_ident
from types import FrameType
from typing import Any, Self

_DEEDS = {
    "os.putenv": "changes the environment",
    "os.unsetenv": "changes the environment",
    "os.chdir": "changes the working folder",
    "subprocess.Popen": "starts a process",
    "os.system": "starts a process",
    "os.posix_spawn": "starts a process",
    "os.fork": "starts a process",
    "os.forkpty": "starts a process",
    "os.exec": "starts a process",
    "_thread.start_new_thread": "starts a thread",
    "_thread.start_joinable_thread": "starts a thread",
    "sqlite3.connect": "opens a database",
    **dict.fromkeys(("os.kill", "os.killpg", "signal.pthread_kill"), "sends a signal"),
    **dict.fromkeys(("socket.connect", "socket.bind", "socket.sendto", "socket.sendmsg"), "uses a network"),
    **dict.fromkeys(
        ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.symlink", "os.chmod", "os.chown"),
        "changes files",
    ),
}  # fmt: skip
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC

_watched = 0
"""The thread that may do none of it now."""
_refuse: Callable[[str], None] = lambda what: None  # noqa: E731
_hooked = False


def _hook(event: str, args: tuple[Any, ...]) -> None:
    if _watched and _watched == get_ident():
        deed = _DEEDS.get(event)
        if deed is None and event == "open" and args[2] & _WRITING:
            deed = "writes to a file"
        if deed is not None and not _importing():
            _refuse(deed)


def _importing() -> bool:
    """What a module does while it is imported is done once, by whichever run comes first."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


class no_deeds:
    """`refuse` is called with what this thread is about to do, and raises."""

    def __init__(self, refuse: Callable[[str], None]) -> None:
        self._new = refuse

    def __enter__(self) -> Self:
        global _watched, _refuse, _hooked
        if not _hooked:  # for good: Python has no way to take it out
            _hooked = True
            sys.addaudithook(_hook)
        _refuse, _watched = self._new, get_ident()
        return self

    def __exit__(self, *problem: Any) -> None:
        global _watched
        _watched = 0
