"""The collectives of a rank, in two files that outlive whatever ends the process; others read them while it runs.

`collectives.ring` has the last calls, each in a record of fixed size, which is written when the call begins and again when it ends.
`collectives.jsonl` has what calls have in common: the op, its group, the shape, the line, and what the line stands in.
"""

from __future__ import annotations

import json
import os
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tensonde.model.site import SourceLine
from tensonde.program.lines import source_line

RING, KINDS = "collectives.ring", "collectives.jsonl"
CAPACITY = 8192
"""Calls that are kept."""
MOST_KINDS = 4096
_MAGIC = b"tnsndcl\1"
_HEAD = struct.Struct("<8sq")
_RECORD = struct.Struct("<qqIidd")
"""Which call of the process it is, its number in its group, its kind, the step, when it began, and how long the rank was in it, or one of these:"""
_INSIDE, _BESIDE = -1.0, -2.0
"""The rank is in it; it runs beside the program, which may wait for it later."""
_SECONDS = struct.Struct("<d")
_SECONDS_AT = _RECORD.size - _SECONDS.size
GRADIENTS = "gradients"
"""The op of the wait for the gradients of DistributedDataParallel, which C++ reduces, bucket by bucket, in a backward pass."""

BUFFERS = "buffers"
"""The op of the wait for the buffers that DistributedDataParallel sends before a forward."""


@dataclass(frozen=True, slots=True)
class Kind:
    """`what` is the dtype and shape of its tensor. `size` is how many ranks the group has. `around` is `program.surroundings`. `peer` is the rank
    that a tensor goes to or comes from; -1 where that is not one rank. `tag` is what tells tensors between two
    ranks apart, -1 where it is not known. `skips` are, of a backward pass, the lines that may leave out a batch before it; `unsynchronised` is the line of a
    `with` around it that may keep it from reducing gradients (`no_sync`), 0 where there is none."""

    op: str
    what: str = ""
    reduce: str = ""
    group: str = "default"
    size: int = 0
    file: str = ""
    line: int = 0
    around: list[dict[str, Any]] = field(default_factory=list, compare=False, hash=False)
    peer: int = -1
    skips: list[int] = field(default_factory=list, compare=False, hash=False)
    tag: int = 0
    unsynchronised: int = 0

    @property
    def source(self) -> SourceLine | None:
        return source_line(self.file, self.line) if self.file else None

    def __str__(self) -> str:
        if self.op in (GRADIENTS, BUFFERS):
            return f"the {self.op} of DistributedDataParallel"
        tag = f" with tag {self.tag}" if self.tag > 0 else ""
        return f"{self.op} of {self.what}{tag}" if self.what else self.op


@dataclass(frozen=True, slots=True)
class Call:
    """`number` counts the calls of its group; `began` is a time of day; `seconds`, in its call and in waits for it, is None while it runs.
    `beside`: it runs, and the program has gone on meanwhile (`async_op=True`, functional collectives)."""

    index: int
    number: int
    kind: Kind
    step: int
    began: float
    seconds: float | None
    beside: bool = False

    def __str__(self) -> str:
        return f"{self.kind} (number {self.number})"


class CollectivesFile:
    """Written by the training thread. Never raises: after a failure it is done without."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pid = os.getpid()
        self._fd = -1
        self._open = False
        self._count = 0
        self._beside = -1
        """A call that runs beside the program, which the file does not say yet: mostly the program waits for it at once."""
        self._awaited = -1
        self._kinds: dict[Any, int] = {}
        self._described: dict[int, Kind] = {}
        self._running: tuple[int, int, int, int, float] | None = None
        """What was written of the call that the program is in."""
        self._left: tuple[int, int, int, int, float] | None = None
        """The same of the last one that runs beside it."""

    @property
    def running(self) -> Call | None:
        """The call that this rank is in. Any thread."""
        known = self._running
        if known is None:
            return None
        index, number, kind, step, began = known
        return Call(index, number, self._described.get(kind, Kind("?")), step, began, None)

    def kind(self, key: Any, describe: Callable[[], Kind]) -> int:
        """The number of a kind; it is described where `key` is new. About 0.1 µs for one that is known."""
        known = self._kinds.get(key)
        if known is None:
            known = self._kinds[key] = len(self._kinds) if len(self._kinds) < MOST_KINDS else MOST_KINDS
            if known < MOST_KINDS:
                self._describe(known, describe())
        return known

    def begins(self, kind: int, number: int, step: int) -> int:
        """A call begins; the answer is for `ended`."""
        if not self._open:
            self._start()
        if self._beside >= 0:
            self.tell()
        index = self._count
        self._count = index + 1
        began = time.time()
        self._running = (index, number, kind, step, began)
        record = _RECORD.pack(index, number, kind, step, began, _INSIDE)
        self._write(record, _HEAD.size + index % CAPACITY * _RECORD.size)
        return index

    def runs_on(self, index: int) -> None:
        """The program goes on while this call runs. Told with the next call, or by `tell`."""
        if self._beside >= 0:
            self.tell()
        self._beside = index
        self._left, self._running = self._running, None

    def tell(self) -> None:
        """Writes what `runs_on` has left. By any thread."""
        index, self._beside = self._beside, -1
        if index >= 0:
            self.ended(index, _BESIDE)
            if index == self._awaited:  # meanwhile
                self.ended(index, _INSIDE)

    def waited_for(self, index: int) -> None:
        """The program waits for a call that ran beside it."""
        self._awaited = index
        if self._left is not None and self._left[0] == index:
            self._running = self._left
        if index == self._beside:
            self._beside = -1
        else:
            self.ended(index, _INSIDE)

    def ended(self, index: int, seconds: float) -> None:
        if seconds >= 0:
            self._running = None
        self._write(_SECONDS.pack(seconds), _HEAD.size + index % CAPACITY * _RECORD.size + _SECONDS_AT)

    def close(self) -> None:
        if self._beside >= 0:
            self.tell()
        fd, self._fd = self._fd, -1
        self._open = True
        if fd >= 0 and os.getpid() == self._pid:
            try:
                os.close(fd)
            except OSError:
                pass

    def _start(self) -> None:
        self._open = True
        try:
            self._fd = os.open(self._folder / RING, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError:
            return
        self._write(_HEAD.pack(_MAGIC, CAPACITY), 0)

    def _describe(self, number: int, kind: Kind) -> None:
        self._described[number] = kind
        said = {name: getattr(kind, name) for name in Kind.__slots__}
        try:
            with open(self._folder / KINDS, "a") as file:
                file.write(json.dumps({"kind": number, **said}) + "\n")
        except OSError:
            pass

    def _write(self, content: bytes, at: int) -> None:
        if self._fd < 0 or os.getpid() != self._pid:
            return
        try:
            os.pwrite(self._fd, content, at)
        except OSError:
            self.close()


def read_collectives(folder: Path) -> list[Call]:
    """The calls that are kept, in order; empty where there are none, or the files are damaged."""
    try:
        content = (folder / RING).read_bytes()
        magic, capacity = _HEAD.unpack_from(content, 0)
    except (OSError, struct.error):
        return []
    if magic != _MAGIC or not 0 < capacity <= 1 << 20:
        return []
    kinds = _kinds(folder / KINDS)
    unknown = Kind("?")
    found = []
    room = (len(content) - _HEAD.size) // _RECORD.size
    for slot in range(min(room, capacity)):
        index, number, kind, step, began, seconds = _RECORD.unpack_from(content, _HEAD.size + slot * _RECORD.size)
        if index % capacity == slot and began > 0:
            took = seconds if seconds >= 0 else None
            found.append(Call(index, number, kinds.get(kind, unknown), step, began, took, seconds == _BESIDE))
    return sorted(found, key=lambda call: call.index)


def _kinds(path: Path) -> dict[int, Kind]:
    found: dict[int, Kind] = {}
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return found
    for text in lines:
        try:
            said = json.loads(text)
            number = int(said.pop("kind"))
            found[number] = Kind(**{name: said[name] for name in Kind.__slots__ if name in said})
        except (ValueError, TypeError, KeyError, AttributeError):
            continue  # the last line of a process that was killed
    return found
