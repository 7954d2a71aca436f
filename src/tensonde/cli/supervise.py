"""Runs the user's program as a child, with Tensonde inside, and comes back with its exit code.

The program is started as the user would start it, so that `__main__`, pickling, relative imports and
child processes behave as always; the start-up file on PYTHONPATH lets Tensonde in. Signals go through.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import IO

from tensonde.session.launch import watched_environment
from tensonde.session.options import Options

_FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def supervise(
    command: list[str],
    options: Options,
    *,
    extra: Mapping[str, str] | None = None,
    quiet_output: bool = False,
    folder: Path | None = None,
    output: IO[bytes] | None = None,
) -> int:
    """The exit code as a shell would see it: 128 + n after signal n.

    `extra` joins the child's environment. With `quiet_output`, what the script prints goes to standard error, for
    standard output is to be read by a program; with `output`, all that it prints goes to that file.
    """
    # Ctrl-C reaches the child by the terminal; the supervisor waits for what the child makes of it.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    child = subprocess.Popen(
        command,
        env=watched_environment(options, extra),
        cwd=folder,
        stdout=output if output is not None else 2 if quiet_output else None,
        stderr=output,
        preexec_fn=lambda: signal.signal(signal.SIGINT, before),
    )

    def forward(number: int, _: FrameType | None) -> None:
        child.send_signal(number)

    previous = {number: signal.signal(number, forward) for number in _FORWARDED}
    try:
        code = child.wait()
    finally:
        signal.signal(signal.SIGINT, before)
        for number, action in previous.items():
            signal.signal(number, action)
    return code if code >= 0 else 128 - code
