"""What every source of tensors can do: list its entries, and give one's bytes or numbers."""

from __future__ import annotations

import math
import mmap
import os
from collections import OrderedDict
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from tensonde.errors import RecordingError
from tensonde.store.damage import open_file, reading
from tensonde.store.dtypes import SIZES, numbers
from tensonde.store.sources.entry import Entry

Array = np.ndarray[Any, Any]

MAPPED_FILES = 32
"""Files that are kept mapped at a time."""


class TensorSource:
    """Made by `open_source`. One thread at a time. Raises RecordingError when a tensor cannot be read; what is wrong
    with the whole is in `problems`.

    A kind of source sets `kind` and `format`, and implements `_entries`; where bytes do not lie plainly in a file, also `_made`.
    """

    kind = ""
    format = ""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problems: list[str] = []
        self._mapped: OrderedDict[Path, Array] = OrderedDict()

    @cached_property
    def entries(self) -> list[Entry]:
        """In execution order within each rank, the ranks one after the other. No tensor is read for it."""
        with reading(self.path, self._article):
            found = self._entries()
            for entry in found:
                check_entry(entry)
        return found

    @property
    def _article(self) -> str:
        """For sentences: what this is."""
        return (
            f"a {self.kind} of {self.format}"
            if self.kind != "checkpoint"
            else f"a {self.format} {'folder' if self.path.is_dir() else 'file'}"
        )

    @property
    def ranks(self) -> list[int]:
        return sorted({entry.rank for entry in self.entries})

    def _entries(self) -> list[Entry]:
        raise NotImplementedError

    def _made(self, entry: Entry) -> Array:
        """The bytes of an entry without a file."""
        raise RecordingError(f"{entry.site} of {self.path} cannot be read.")

    # -- reading ---------------------------------------------------------------------------------

    def raw(self, entry: Entry) -> Array:
        """The bytes, flat: little endian, in C order; memory-mapped and read-only where they lie so in a file."""
        if entry.file is None:
            with reading(self.path, self._article):
                return self._made(entry)
        if entry.nbytes == 0:
            return np.empty(0, np.uint8)
        whole = self._map(entry)
        if len(whole) < entry.offset + entry.nbytes:
            raise self._short(entry, len(whole))
        return whole[entry.offset : entry.offset + entry.nbytes]

    def read(self, entry: Entry) -> Array:
        """The tensor in numpy; bfloat16 and float8 as float32 of the same values. It may be a read-only view of the file."""
        flat = numbers(self.raw(entry), entry.dtype)
        return flat.reshape(entry.shape) if flat.size == math.prod(entry.shape) else flat

    def chunks(self, entry: Entry, elements: int = 1 << 22) -> Iterator[Array]:
        """The numbers in order, flat, `elements` at a time; holds no more than that in memory where the bytes lie in a file."""
        size = SIZES.get(entry.dtype, 1)
        for piece in self.pieces(entry, elements * size):
            yield numbers(piece, entry.dtype)

    def pieces(self, entry: Entry, size: int = 1 << 24) -> Iterator[Array]:
        """The bytes in order, at most `size` at a time. Each piece is the caller's."""
        if entry.file is None:
            raw = self.raw(entry)
            for start in range(0, len(raw), size):
                yield raw[start : start + size]
            return
        try:  # read, not mapped: mapped pages would count as this process's memory
            with open_file(entry.file, buffering=0) as file:
                file.seek(entry.offset)
                left = entry.nbytes
                while left:
                    piece = np.empty(min(size, left), np.uint8)
                    filled = 0
                    while filled < len(piece):
                        got = file.readinto(piece[filled:].data)  # type: ignore[attr-defined]
                        if not got:
                            raise self._short(entry, os.fstat(file.fileno()).st_size)
                        filled += got
                    left -= len(piece)
                    yield piece
        except OSError as problem:
            raise RecordingError(f"{entry.site} cannot be read from {entry.file}: {problem.strerror}.") from None

    def _map(self, entry: Entry) -> Array:
        file = entry.file
        assert file is not None
        known = self._mapped.get(file)
        if known is not None:
            self._mapped.move_to_end(file)
            return known
        try:
            with open_file(file) as opened:
                if os.fstat(opened.fileno()).st_size == 0:
                    raise self._short(entry, 0)
                content = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as problem:
            raise RecordingError(f"{entry.site} cannot be read from {file}: {problem}.") from None
        mapped: Array = np.frombuffer(content, np.uint8)
        self._mapped[file] = mapped
        if len(self._mapped) > MAPPED_FILES:
            self._mapped.popitem(last=False)
        return mapped

    @staticmethod
    def _short(entry: Entry, size: int) -> RecordingError:
        return RecordingError(
            f"{entry.file} is truncated: {entry.site} lies in bytes {entry.offset} to {entry.offset + entry.nbytes}, "
            f"and the file has {size}."
        )

    def close(self) -> None:
        """Forget what is mapped; arrays that were given stay good."""
        self._mapped.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def check_entry(entry: Entry) -> None:
    """Raises ValueError where an entry cannot be: what reads it relies on this."""
    numbers = (entry.nbytes, entry.offset, entry.step, entry.call, entry.rank, entry.order)
    if not all(isinstance(n, int) and -(1 << 63) <= n < 1 << 63 for n in (*numbers, *entry.shape)):
        raise ValueError(f"{entry.site} has a number that is none, or is too large")
    if min((entry.nbytes, entry.offset, *entry.shape)) < 0:
        raise ValueError(f"{entry.site} has the shape {list(entry.shape)} and {entry.nbytes} bytes at {entry.offset}")
    if not all(isinstance(text, str) for text in (entry.site, entry.dtype, entry.phase, entry.kind, entry.type)):
        raise ValueError("a name is missing")
    if entry.dtype in SIZES and math.prod(entry.shape) * SIZES[entry.dtype] != entry.nbytes:
        raise ValueError(f"{entry.site} has {entry.nbytes} bytes, which are not {entry.dtype}{list(entry.shape)}")


def elements(entry: Entry) -> int:
    """Numbers that `chunks` gives of it. A tensor of a dtype that is unknown here comes as its bytes."""
    return entry.nbytes // SIZES.get(entry.dtype, 1)
