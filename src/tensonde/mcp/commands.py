"""Tensonde's own commands as processes: what their `--json` prints is the answer."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tensonde.errors import UsageError

QUICK_SECONDS = 60.0
ENDING_SECONDS = 20.0
"""For a program that was told to end, and for the diagnosis after it."""
MOST_OUTPUT = 1 << 20
MOST_DOCUMENT = 64 << 20


@dataclass(frozen=True, slots=True)
class Done:
    code: int
    out: str
    err: str
    timed_out: bool = False


def document(folder: Path, *words: str, seconds: float = QUICK_SECONDS) -> Any:
    """What `tensonde WORDS... --json` prints. Raises UsageError with the command's own sentence."""
    done = call(folder, *words, seconds=seconds)
    if done.timed_out:
        raise UsageError(f"`tensonde {words[0]}` took more than {seconds:g} s and was ended; ask for less.")
    try:
        return json.loads(done.out)
    except ValueError:
        raise UsageError(_sentence(done.err) or f"`tensonde {words[0]}` ended with exit code {done.code}.") from None


def call(folder: Path, *words: str, seconds: float) -> Done:
    """Blocks. A command that takes longer is told to end."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = start(folder, words, out, err)
        timed_out = not wait(process, seconds)
        return Done(process.returncode, tail(out, MOST_DOCUMENT), tail(err, MOST_OUTPUT), timed_out)


def start(
    folder: Path, words: Sequence[str], out: IO[bytes], err: IO[bytes], *, environment: dict[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """In a group of its own, so that it can be ended with all that it has started."""
    return subprocess.Popen(
        [sys.executable, "-m", "tensonde", *words], cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
        env={**os.environ, "COLUMNS": "120", **(environment or {})}, start_new_session=True,
    )  # fmt: skip


def wait(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Whether it ended by itself in that time; it is over in any case."""
    try:
        process.wait(seconds)
        return True
    except subprocess.TimeoutExpired:
        end(process)
        return False


def end(process: subprocess.Popen[bytes]) -> None:
    """`tensonde run` passes SIGTERM on and diagnoses what was recorded. What does not heed it is killed."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(ENDING_SECONDS)
    except subprocess.TimeoutExpired:
        pass
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def tail(file: IO[bytes], most: int) -> str:
    """The end of what was written, from the beginning of a line."""
    length = os.fstat(file.fileno()).st_size
    begin = max(0, length - most)
    text = os.pread(file.fileno(), most, begin).decode(errors="replace")
    return text.partition("\n")[2] if begin else text


def _sentence(err: str) -> str:
    """`tensonde: ...` or `Error: ...`, the last thing that a command says where it is used wrongly."""
    for line in reversed(err.strip().splitlines()):
        for begin in ("tensonde: ", "Error: "):
            if line.startswith(begin):
                return line.removeprefix(begin)
    return err.strip().splitlines()[-1] if err.strip() else ""
