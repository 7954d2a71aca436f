"""Runs the user's program as a child, with Tensonde inside, and comes back with its exit code.

The program is started as the user would start it, so that `__main__`, pickling, relative imports and
child processes behave as always; the start-up file on PYTHONPATH lets Tensonde in. Signals go through.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import IO

from tensonde.launch.bystander import Bystander
from tensonde.launch.environment import watched_environment
from tensonde.launch.processes import kill_tree
from tensonde.launch.waiting import WaitingRanks
from tensonde.session.options import Options
from tensonde.store.compactor import compact_closed

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_FORWARDED = (*_ENDING, signal.SIGUSR1, signal.SIGUSR2)
PATIENCE = 5.0
"""Seconds that a program has to end by itself after the command that runs it was asked to end."""


def supervise(
    command: list[str],
    options: Options,
    *,
    extra: Mapping[str, str] | None = None,
    quiet_output: bool = False,
    folder: Path | None = None,
    output: IO[bytes] | None = None,
    faithful: bool = False,
    watch_ranks: bool = True,
) -> int:
    """The exit code as a shell would see it: 128 + n after signal n.

    `extra` joins the child's environment. With `quiet_output`, what the script prints goes to standard error, for
    standard output is to be read by a program; with `output`, all that it prints goes to that file.

    `faithful`: a signal means to the program what it means without Tensonde, whether or not the program ends by it. Else
    SIGINT, SIGTERM and SIGHUP end the command: the program gets the signal, is killed if it does not end, and SystemExit is raised.

    `watch_ranks`: says when ranks wait for each other in vain. One of the commands of a training does so.
    """
    received: list[int] = []
    told_at: list[float] = []
    bystander = Bystander(_FORWARDED)
    before = {number: signal.signal(number, _waiting_room(received)) for number in _FORWARDED}
    try:
        child = subprocess.Popen(
            command,
            env=watched_environment(replace(options, supervised=True), extra),
            cwd=folder,
            stdout=output if output is not None else 2 if quiet_output else None,
            stderr=output,
            preexec_fn=lambda: _restore(before),
        )

        def forward(number: int, _: FrameType | None) -> None:
            received.append(number)
            if number in _ENDING:
                told_at.append(time.monotonic())
            if child.returncode is None and not bystander.saw(number):
                child.send_signal(number)

        for number in _FORWARDED:
            signal.signal(number, forward)
        for early in received[:]:  # while the child was being made
            forward(early, None)
        waiting = WaitingRanks(Path(options.run), options.watches) if watch_ranks else None
        try:
            code = child.wait() if faithful else _wait(child, told_at)
        finally:
            if waiting is not None:
                waiting.end()
    finally:
        _restore(before)
        bystander.close()
    compact_closed(Path(options.run))
    asked = next((number for number in received if number in _ENDING), None)
    if asked is not None and not faithful:
        sys.exit(128 + asked)
    return code if code >= 0 else 128 - code


def _wait(child: subprocess.Popen[bytes], told_at: list[float]) -> int:
    """The child's exit code. It is killed with its children when it was told to end and has had time enough."""
    while True:
        try:
            return child.wait(1.0)
        except subprocess.TimeoutExpired:
            if told_at and time.monotonic() - told_at[0] > PATIENCE:
                kill_tree(child.pid)


def _waiting_room(received: list[int]) -> Callable[[int, FrameType | None], None]:
    def note(number: int, _: FrameType | None) -> None:
        received.append(number)

    return note


def _restore(actions: Mapping[signal.Signals, object]) -> None:
    for number, action in actions.items():
        signal.signal(number, signal.SIG_DFL if action is None else action)  # type: ignore[arg-type]
