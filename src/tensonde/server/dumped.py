"""Whole tensors that a run dumped (`--dump`), beside those that hits have kept: both are at hand in the tensor view."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np

from tensonde.errors import RecordingError
from tensonde.store.dump.layout import INDEX, JOURNAL, RANK, is_dump
from tensonde.store.sources.dumped import TensondeDump
from tensonde.store.sources.entry import Entry

Array = np.ndarray[Any, Any]
FOLDER = "dump"
"""Where `tensonde run --dump` puts it, in the folder of the run."""


class DumpedTensor:
    """`server.tensor.Tensor` for an entry of a dump."""

    def __init__(self, dump: Dump, entry: Entry) -> None:
        self._dump, self._entry = dump, entry
        self.address, self.dtype, self.shape = entry.site, entry.dtype, entry.shape
        self.step: int | None = entry.step
        self.note = ""

    def read(self, index: tuple[Any, ...]) -> Array:
        whole = self._dump.read(self._entry)
        return np.array(whole[index] if index else whole)


class Dump:
    """The dump of one rank, as far as it is written. Any thread."""

    def __init__(self, run: Path, rank: int) -> None:
        self._folder, self._rank = run / FOLDER, rank
        self._lock = threading.Lock()
        self._stamp: object = None
        self._source: TensondeDump | None = None
        self._by_site: dict[str, list[Entry]] = {}

    def read(self, entry: Entry) -> Array:
        with self._lock:
            assert self._source is not None
            return self._source.read(entry)

    def entries(self, address: str) -> list[Entry]:
        """In the order of execution."""
        return self.all().get(address, [])

    def all(self) -> dict[str, list[Entry]]:
        """By address. Empty where there is no dump, or none that can be read."""
        with self._lock:
            stamp = self._look()
            if stamp != self._stamp:
                self._stamp = stamp
                self._by_site = self._gather() if stamp else {}
            return self._by_site

    def _look(self) -> object:
        if not self._folder.is_dir():
            return None
        found = []
        for path in sorted(self._folder.glob(f"{RANK}{self._rank}*/*")):
            if path.name in (INDEX, JOURNAL):
                try:
                    known = path.stat()
                except OSError:
                    continue
                found.append((path.name, known.st_size, known.st_mtime_ns))
        return tuple(found)

    def _gather(self) -> dict[str, list[Entry]]:
        found: dict[str, list[Entry]] = {}
        if not is_dump(self._folder):
            return found
        try:
            self._source = TensondeDump(self._folder)
            for entry in self._source.entries:
                if entry.rank == self._rank:
                    found.setdefault(entry.site, []).append(entry)
        except (RecordingError, OSError):  # it is being written, or damaged: `tensonde convert` says what is wrong
            return {}
        return found
