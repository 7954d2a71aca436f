"""Digests by column, ready to be asked again and again: each segment of a recording is decoded once, column by column,
and kept while there is room. A segment that still grows is read anew when it has grown.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import numpy as np

from tensonde.digest.latest import last_rows
from tensonde.digest.layout import EXPONENT_BINS
from tensonde.errors import RecordingError
from tensonde.store.format import LIVE
from tensonde.store.tables import StoredTable

Array = np.ndarray[Any, Any]
ROOM = 512 << 20
"""Bytes of decoded columns, over all recordings."""


class Shelf:
    """Decoded columns of all segments; the ones asked longest ago go first. Any thread."""

    def __init__(self, room: int = ROOM) -> None:
        self._room, self._used = room, 0
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[int, str], Array] = OrderedDict()

    def get(self, key: tuple[int, str], make: Callable[[], Array]) -> Array:
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
                return found
        made = make()
        with self._lock:
            if key not in self._kept:
                self._used += made.nbytes
            self._kept[key] = made
            while self._used > self._room and len(self._kept) > 1:
                _, gone = self._kept.popitem(last=False)
                self._used -= gone.nbytes
        return made

    def forget(self, owner: int) -> None:
        with self._lock:
            for key in [key for key in self._kept if key[0] == owner]:
                self._used -= self._kept.pop(key).nbytes


SHELF = Shelf()
_serial = iter(range(1 << 62))


class Segment(Protocol):
    """Some rows in the order recorded. What it returns is shared: nobody writes into it."""

    def column(self, name: str) -> Array: ...

    def rows_of(self, site: int) -> Array:
        """The rows of a site, ascending."""

    def last(self) -> tuple[Array, Array]:
        """Every site that has rows, and its last row."""


class Indexed:
    """Finds the rows of a site by one sorting of the segment."""

    def __init__(self) -> None:
        self._index: tuple[Array, Array, Array] | None = None

    def column(self, name: str) -> Array:
        raise NotImplementedError

    def _sorted(self) -> tuple[Array, Array, Array]:
        if self._index is None:
            sites = self.column("site")
            order = np.argsort(sites, kind="stable").astype(np.int32)
            present, starts = np.unique(sites[order], return_index=True)
            self._index = (order, present, np.append(starts, len(order)))
        return self._index

    def rows_of(self, site: int) -> Array:
        order, present, starts = self._sorted()
        at = int(np.searchsorted(present, site))
        if at == len(present) or present[at] != site:
            return np.empty(0, np.int32)
        return order[starts[at] : starts[at + 1]]

    def last(self) -> tuple[Array, Array]:
        order, present, starts = self._sorted()
        return present, order[starts[1:] - 1] if len(present) else np.empty(0, np.int32)


class StoredSegment(Indexed):
    """`growing`: all columns are read at once, as they lie interleaved in the file."""

    def __init__(self, table: StoredTable, number: str, *, growing: bool = False) -> None:
        super().__init__()
        self._table, self._number, self._serial = table, number, next(_serial)
        self._whole = table.segment(number, table.schema.names) if growing else None
        self._rows: int | None = None

    def column(self, name: str) -> Array:
        return SHELF.get((self._serial, name), lambda: self._read(name))

    def _read(self, name: str) -> Array:
        table = self._whole if self._whole is not None else self._table.segment(self._number, [name])
        column = table[name].combine_chunks()
        if name == "exponents":
            array: Array = np.asarray(column.flatten()).reshape(-1, EXPONENT_BINS)
        else:
            array = np.asarray(column)
        if self._rows is None:
            self._rows = len(array)
        elif self._rows != len(array):  # a part of this column is damaged: rows no longer fit together
            self._whole = self._table.segment(self._number, self._table.schema.names)
            self._rows = self._index = None
            self.forget()
            raise RecordingError(
                f"segment {self._number} of the digests is damaged; load again to see what is left of it."
            )
        return array

    def forget(self) -> None:
        SHELF.forget(self._serial)


class RowSegment(Indexed):
    """Rows in memory, as they came from an agent."""

    def __init__(self, rows: Array) -> None:
        super().__init__()
        self._rows = rows

    def column(self, name: str) -> Array:
        found: Array = self._rows[name]
        return found


class DigestColumns:
    """The digests of a recorded rank. One thread at a time."""

    def __init__(self, table: StoredTable) -> None:
        self._table = table
        self._known: dict[str, tuple[Any, StoredSegment]] = {}

    def segments(self) -> list[Segment]:
        stamps = self._table.stamps()
        for gone in set(self._known) - set(stamps):
            self._known.pop(gone)[1].forget()
        for number, stamp in stamps.items():
            known = self._known.get(number)
            if known is None or known[0] != stamp:
                if known is not None:
                    known[1].forget()
                self._known[number] = (stamp, StoredSegment(self._table, number, growing=stamp[0] == LIVE))
        return [self._known[number][1] for number in stamps]


def gather(
    segments: Iterable[Segment], site: int, names: Iterable[str], steps: tuple[int, int] | None
) -> dict[str, Array]:
    """The columns of one site over all segments."""
    wanted = list(dict.fromkeys((*names, "step")))
    parts: dict[str, list[Array]] = {name: [] for name in wanted}
    for segment in segments:
        rows = segment.rows_of(site)
        if len(rows) and steps is not None:
            at = segment.column("step")[rows]
            rows = rows[(at >= steps[0]) & (at <= steps[1])]
        if len(rows):
            for name in wanted:
                parts[name].append(segment.column(name)[rows])
    return {name: np.concatenate(found) if found else np.empty(0) for name, found in parts.items()}


def latest(segments: list[Segment], step: int | None) -> tuple[Array, list[tuple[Segment, Array]]]:
    """The last row of each site at or before `step`: the sites in ascending order of id, and where their rows are."""
    seen: set[int] = set()
    picked: list[tuple[Segment, Array]] = []
    found: list[Array] = []
    for segment in reversed(segments):
        at = segment.column("step")
        if not len(at):
            continue
        if step is None or (at[-1] <= step and at.max() <= step):
            sites, rows = segment.last()
        elif at.min() > step:
            continue
        else:
            kept = np.flatnonzero(at <= step)
            sites, last = last_rows(segment.column("site")[kept])
            rows = kept[last]
        new = np.array([site not in seen for site in sites.tolist()], bool)
        if new.any():
            seen.update(sites[new].tolist())
            found.append(np.asarray(sites)[new])
            picked.append((segment, np.asarray(rows)[new]))
    return np.concatenate(found) if found else np.empty(0, np.int64), picked


def thin(values: Array, points: int) -> Array:
    """Which rows to show when there are too many: of each stretch the smallest, the largest and the first that is not finite."""
    count = len(values)
    if points <= 0 or count <= points:
        return np.arange(count)
    edges = np.linspace(0, count, max(points // 2, 1) + 1).astype(np.int64)
    finite = np.isfinite(values)
    low, high = np.where(finite, values, np.inf), np.where(finite, values, -np.inf)
    chosen: set[int] = {0, count - 1}
    for begin, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        if end > begin:
            chosen.add(begin + int(low[begin:end].argmin()))
            chosen.add(begin + int(high[begin:end].argmax()))
            if not finite[begin:end].all():
                chosen.add(begin + int(finite[begin:end].argmin()))
    return np.array(sorted(chosen))
