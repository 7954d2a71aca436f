"""One step of a dump: a safetensors file that is written in one go from front to back, its header last.

The room for the header is kept free at the front, so that nothing has to be moved. Writes go past the page cache
(O_DIRECT) where the file system can: copying into the cache costs a whole core at a gigabyte a second, and the data will not
be read again soon.
"""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path

from tensonde.store.values import CODES

PAGE = 4096
FIRST_ROOM, MOST_ROOM = 256 << 10, 4 << 20
_ROOM_LEFT = 512
_DIRECT = getattr(os, "O_DIRECT", 0)


def stored(dtype: str, shape: tuple[int, ...], nbytes: int) -> tuple[str, list[int]]:
    """What the header calls it: safetensors has no complex numbers, and not every dtype."""
    code, size = CODES.get(dtype, ("U8", 0))
    if not size:
        return "U8", [nbytes]
    return code, [*shape, 2] if dtype.startswith("complex") else list(shape)


class StepFile:
    """`add` by the thread that fills, `write` and `finish` by the thread that writes. Raises OSError."""

    def __init__(self, folder: Path, name: str, facts: dict[str, str], room: int) -> None:
        self.name = name
        self.path = folder / name
        self.room = room
        self.size = room
        """Where the next tensor goes."""
        self._header: list[tuple[str, int]] = []
        """Descriptions, and where their tensors end."""
        self._facts = facts
        self._used = 256 + len(json.dumps(facts))
        self._fd = -1
        self._direct = False
        self.written = 0

    # -- the thread that fills -------------------------------------------------------------------

    def described(self, key: str, dtype: str, shape: tuple[int, ...], nbytes: int) -> str:
        """Its place in the header, were it the next to come."""
        code, as_stored = stored(dtype, shape, nbytes)
        first = self.size - self.room
        place = f'"shape":{as_stored},"data_offsets":[{first},{first + nbytes}]'
        return f'{json.dumps(key)}:{{"dtype":"{code}",{place}}}'

    def fits(self, description: str) -> bool:
        return self._used + len(description) + 1 <= self.room - _ROOM_LEFT

    def add(self, description: str, nbytes: int) -> None:
        """The tensor's bytes are all handed over: it counts."""
        self.size += nbytes
        self._header.append((description, self.size))
        self._used += len(description) + 1

    @property
    def next_room(self) -> int:
        """For the file of the next step, which is probably alike."""
        return min(MOST_ROOM, _pages(int(self._used * 1.25) + _ROOM_LEFT))

    # -- the thread that writes ------------------------------------------------------------------

    def open(self, *, direct: bool) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            self._fd = os.open(self.path, flags | (_DIRECT if direct else 0), 0o644)
            self._direct = direct and bool(_DIRECT)
        except OSError as problem:
            if not direct or problem.errno == 17:
                raise
            self._fd = os.open(self.path, flags, 0o644)

    def write(self, content: memoryview) -> None:
        """Append: first zeros for the header's room, so that there is space for it when it comes, then the tensors.

        Past the cache only whole pages can be written: the last write is filled up to one."""
        self._write(content, self.written)
        self.written += len(content)

    def _write(self, content: memoryview, at: int) -> None:
        while content:
            try:
                done = os.pwrite(self._fd, content, at)
            except OSError as problem:
                if not self._direct or problem.errno != 22:
                    raise
                self._buffered()  # a file system that takes the flag and then refuses to write so
                continue
            if self._direct and done % PAGE and done < len(content):
                self._buffered()
            content, at = content[done:], at + done

    def _buffered(self) -> None:
        import fcntl

        self._direct = False
        fcntl.fcntl(self._fd, fcntl.F_SETFL, fcntl.fcntl(self._fd, fcntl.F_GETFL) & ~_DIRECT)

    def finish(self) -> int:
        """Write the header of what is whole, cut the file there, and close it. How many bytes of the file are good."""
        if self._fd < 0:
            return 0
        whole = [(text, end) for text, end in self._header if end <= self.written]
        end = whole[-1][1] if whole else self.room
        parts = [f'"__metadata__":{json.dumps(self._facts)}', *(text for text, _ in whole)]
        header = ("{" + ",".join(parts) + "}").encode()
        try:
            os.ftruncate(self._fd, end)
            if self._direct:
                self._buffered()
            padded = struct.pack("<Q", self.room - 8) + header + b" " * (self.room - 8 - len(header))
            self._write(memoryview(padded), 0)
        finally:
            os.close(self._fd)
            self._fd = -1
        return end


def _pages(size: int) -> int:
    return -(-size // PAGE) * PAGE
