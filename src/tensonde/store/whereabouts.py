"""Where a training is, in a small file that outlives whatever ends the process. Other processes read it while it runs.

The training writes into it by `pwrite`: the kernel has the bytes when the call returns, so that a segfault, a `kill -9` or
an `os._exit` cannot take them back. (Mapped memory would be quicker, but a full disk turns a write to it into SIGBUS.)
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from tensonde.program.frames import is_user

FILE = "whereabouts"
HELD = "(stopped by a debugger)"
"""In the place of a function: a rank that stands still because somebody wants it to."""
_MAGIC = b"tnsnd\0\0\1"
_HEAD = struct.Struct("<8sq")
_STEP = struct.Struct("<q")
_CALL = struct.Struct("<qiHH")
"""Step, line, and how long the two texts are that follow: the module's name and the file."""
_LEFT = struct.Struct("<iHH")
_WAIT = struct.Struct("<qdiHH")
"""Its number, when it began, line, and how long the two texts are: the collective and the file. The number is negative once it is over."""
_STILL = struct.Struct("<diHH")
"""Since when, line, and how long the two texts are: the function and the file."""
_CALL_AT, _LEFT_AT, _WAIT_AT, _STILL_AT, _SIZE = 64, 2048, 4096, 6144, 8192
_OLD_SIZE = 4096
_NAME, _FILE, _HOW = 256, 1200, 400


@dataclass(frozen=True, slots=True)
class Waiting:
    """A collective that a rank is in. `number` counts those of the same `group`; `since` is a time of day."""

    number: int
    what: str
    group: str
    since: float
    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Still:
    """The line at which the training thread has been since a time of day."""

    since: float
    function: str
    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """What the file says. `step` is the one that was under way; `called_step` the one in which `module` was called."""

    step: int
    module: str = ""
    called_step: int = -1
    file: str = ""
    line: int = 0
    left: str = ""
    """How the program left on its own account, such as `os._exit(5)`, and where."""
    left_file: str = ""
    left_line: int = 0
    waiting: Waiting | None = None
    still: Still | None = None
    """Not None: nothing has happened for some seconds."""

    @property
    def held(self) -> bool:
        """A debugger has stopped it."""
        return self.still is not None and self.still.function == HELD


class WhereaboutsFile:
    """Written by the training thread, and by whichever thread ends the process. Never raises: after a failure it is done without."""

    def __init__(self, folder: Path) -> None:
        self._fd = -1
        self._pid = os.getpid()
        self._noted: tuple[int, str] = (-1, "")
        self.moves = 0
        """Grows while the training goes on."""
        try:
            self._fd = os.open(folder / FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            self._write(_HEAD.pack(_MAGIC, 0).ljust(_SIZE, b"\0"), 0)
        except OSError:
            self._give_up()

    def step(self, step: int) -> None:
        """This step is under way. About 0.6 µs."""
        self.moves += 1
        self._write(_STEP.pack(step), 8)

    def is_news(self, step: int, module: str) -> bool:
        """Whether `called` would say more than it said last."""
        return self._fd >= 0 and self._noted != (step, module)

    def called(self, step: int, module: str, file: str, line: int) -> None:
        """The program called this module, at that line."""
        self._noted = step, module
        self.moves += 1
        name, path = _cut(module, _NAME), _cut(file, _FILE)
        self._write(_CALL.pack(step, line, len(name), len(path)) + name + path, _CALL_AT)

    def still(self, since: float, function: str = "", file: str = "", line: int = 0) -> None:
        """Nothing has happened since then; 0 takes that back."""
        name, path = _cut(function, _NAME), _cut(file, _FILE)
        self._write(_STILL.pack(since, line, len(name), len(path)) + name + path, _STILL_AT)

    def left(self, how: str, file: str = "", line: int = 0) -> None:
        """The program is about to end by itself, past Python's own end; "" takes that back."""
        said, path = _cut(how, _HOW), _cut(file, _FILE)
        self._write(_LEFT.pack(line, len(said), len(path)) + said + path, _LEFT_AT)

    def leaves(self, code: object, trace: TracebackType | None) -> None:
        """By `sys.exit` in the program's own code."""
        found = None
        while trace is not None:
            found = trace if is_user(trace.tb_frame.f_code) else found
            trace = trace.tb_next
        if found is not None:
            self.left(f"sys.exit({code!r})", os.path.abspath(found.tb_frame.f_code.co_filename), found.tb_lineno)

    def close(self) -> None:
        self._give_up()

    def _write(self, content: bytes, at: int) -> None:
        if self._fd < 0 or os.getpid() != self._pid:
            return
        try:
            os.pwrite(self._fd, content, at)
        except OSError:
            self._give_up()

    def _give_up(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0 and os.getpid() == self._pid:
            try:
                os.close(fd)
            except OSError:
                pass


def read_whereabouts(folder: Path) -> Whereabouts | None:
    """None where there is no such file, or it is damaged."""
    try:
        with open(folder / FILE, "rb") as file:
            content = file.read(_SIZE)
        magic, step = _HEAD.unpack_from(content, 0)
        if magic != _MAGIC or len(content) not in (_SIZE, _OLD_SIZE) or step < 0:
            return None
        called_step, line, name_size, file_size = _CALL.unpack_from(content, _CALL_AT)
        module, path = _texts(content, _CALL_AT + _CALL.size, name_size, file_size)
        left_line, how_size, left_size = _LEFT.unpack_from(content, _LEFT_AT)
        left, left_path = _texts(content, _LEFT_AT + _LEFT.size, how_size, left_size)
        waiting, still = (_waiting(content), _still(content)) if len(content) == _SIZE else (None, None)
    except (OSError, struct.error):
        return None
    return Whereabouts(
        step, module, called_step if module else -1, path, line, left, left_path, left_line, waiting, still
    )


def _waiting(content: bytes) -> Waiting | None:
    number, since, line, what_size, file_size = _WAIT.unpack_from(content, _WAIT_AT)
    said, path = _texts(content, _WAIT_AT + _WAIT.size, what_size, file_size)
    group, _, what = said.partition("\n")
    return Waiting(number, what, group, since, path, line) if number > 0 else None


def _still(content: bytes) -> Still | None:
    since, line, name_size, file_size = _STILL.unpack_from(content, _STILL_AT)
    function, path = _texts(content, _STILL_AT + _STILL.size, name_size, file_size)
    return Still(since, function, path, line) if since > 0 else None


def _texts(content: bytes, at: int, first: int, second: int) -> tuple[str, str]:
    middle = at + first
    return content[at:middle].decode(errors="replace"), content[middle : middle + second].decode(errors="replace")


def _cut(text: str, most: int) -> bytes:
    """The end of a long text says more than its beginning."""
    return text.encode(errors="replace")[-most:]
