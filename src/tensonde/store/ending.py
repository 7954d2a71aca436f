"""How a process of a run ended, where it was not by the end of its program: from the files that it left."""

from __future__ import annotations

import os
import re
import signal
from dataclasses import dataclass
from pathlib import Path

from tensonde.model.site import SourceLine
from tensonde.program.lines import display_path, source_line
from tensonde.store.whereabouts import Whereabouts, read_whereabouts

FAULT = "fault.txt"
"""What faulthandler wrote."""
_MOST = 1 << 16

_FATAL = {
    "Segmentation fault": "SIGSEGV",
    "Aborted": "SIGABRT",
    "Bus error": "SIGBUS",
    "Floating-point exception": "SIGFPE",
    "Floating point exception": "SIGFPE",
    "Illegal instruction": "SIGILL",
}
"""The words of faulthandler."""
_FRAME = re.compile(r'^\s+File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)$')
_ESCAPED = re.compile(r"\\(x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8})")
"""How faulthandler writes what is not ASCII."""
_OURS = (
    os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep,
    f"{os.sep}site-packages{os.sep}tensonde{os.sep}",
)
"""Where Tensonde is, here and in the environment of another machine that the recording may come from."""
_LIBRARIES = (
    f"{os.sep}site-packages{os.sep}",
    f"{os.sep}dist-packages{os.sep}",
    f"{os.sep}lib{os.sep}python",
    "<frozen",
)


@dataclass(frozen=True, slots=True)
class Frame:
    file: str
    line: int
    function: str

    @property
    def is_ours(self) -> bool:
        return any(part in self.file for part in _OURS)

    @property
    def is_library(self) -> bool:
        return any(part in self.file for part in _LIBRARIES)

    def __str__(self) -> str:
        return f"{self.function} ({display_path(self.file)}:{self.line})"


@dataclass(frozen=True, slots=True)
class Ending:
    """`signal` is its name, "" where it was none or is not known. `how` is what ended the process, in words. `source` is the program's own line."""

    how: str
    signal: str = ""
    step: int | None = None
    module: str = ""
    source: SourceLine | None = None
    stack: tuple[Frame, ...] = ()
    """Innermost first, of the thread that was hit."""
    at_exit: bool = False
    """The training was over already."""

    @property
    def is_crash(self) -> bool:
        return self.signal in _FATAL.values()


def ending_of(folder: Path, *, closed: bool, exit_code: int | None, cwd: str = "") -> Ending | None:
    """None where the process ended as programs do. `cwd` is the folder that its program ran in. Never raises."""
    written = _fault(folder)
    fatal = next((name for words, name in _FATAL.items() if f"Fatal Python error: {words}" in written), "")
    if closed and not fatal:
        return None
    where = read_whereabouts(folder)
    stack = _stack(written, cwd)
    step, module = (where.step, where.module) if where is not None else (None, "")
    if (
        not fatal and where is not None and where.left and not where.left.startswith("os.kill(")
    ):  # a signal, as any other
        return Ending(where.left, "", step, module, _line(where.left_file, where.left_line), at_exit=closed)
    name = fatal or _signal_of(exit_code)
    how = f"{name} ({_words(name)})" if name else "a signal" if stack else _without_trace(exit_code)
    mine = next((frame for frame in stack if not frame.is_ours and not frame.is_library), None)
    source = _line(mine.file, mine.line) if mine is not None else None if stack else _called(where)
    return Ending(how, name, step, module, source, stack, at_exit=closed)


def _called(where: Whereabouts | None) -> SourceLine | None:
    return _line(where.file, where.line) if where is not None else None


def _fault(folder: Path) -> str:
    try:
        with open(folder / FAULT, "rb") as file:
            return file.read(_MOST).decode(errors="replace")
    except OSError:
        return ""


def _stack(written: str, cwd: str) -> tuple[Frame, ...]:
    """Of the thread that got the signal; of one with the program's own code where that one ran no Python."""
    threads: list[tuple[bool, list[Frame]]] = []
    for line in written.splitlines():
        if "most recent call first" in line:
            threads.append((line.startswith("Current thread"), []))
        elif threads and (found := _FRAME.match(line)):
            file = _ESCAPED.sub(lambda e: chr(int(e[0][2:], 16)), found["file"])
            file = file if file.startswith("<") else os.path.join(cwd, file)  # <string>, <frozen runpy>
            threads[-1][1].append(Frame(file, int(found["line"]), found["function"]))
    chosen = [frames for current, frames in threads if current and frames]
    chosen += [frames for _, frames in threads if any(not f.is_library and not f.is_ours for f in frames)]
    return tuple(chosen[0]) if chosen else ()


def _signal_of(exit_code: int | None) -> str:
    try:
        return signal.Signals((exit_code or 0) - 128).name
    except ValueError:
        return ""


def _without_trace(exit_code: int | None) -> str:
    """The exit code is that of the whole run, which may have several processes."""
    if exit_code is None:
        return "something that left no trace, such as SIGKILL,"
    return f"something that left no trace, such as an exit from native code or SIGKILL (exit code {exit_code}),"


def _words(name: str) -> str:
    text = signal.strsignal(signal.Signals[name]) or name
    return text.lower().removesuffix(" (core dumped)")


def _line(file: str, line: int) -> SourceLine | None:
    return source_line(file, line) if file else None
