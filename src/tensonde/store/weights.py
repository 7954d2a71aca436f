"""What is in a checkpoint: statistics of every tensor, and what changed between two, streamed piece by piece.

Statistics are digests: over the finite values, with NaN and Inf counted apart. The update ratio is mean|new - old| /
(mean|old| + 1e-9), as in the condition `weight_change_too_large`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, Literal

import numpy as np

from tensonde.digest import Block, rows_of
from tensonde.store.sources import Entry, TensorSource
from tensonde.store.sources.source import elements

CHUNK = 1 << 21
OUTLIER = 30.0
"""Standard deviations from the mean beyond which the largest value is an outlier: 10⁹ normal values stay within 6.5."""
FEW = 64
"""A tensor of fewer values has no outliers."""

Array = np.ndarray[Any, Any]
Progress = Callable[[int], None]


@dataclass(slots=True)
class Statistics:
    count: int = 0
    nan: int = 0
    inf: int = 0
    zero: int = 0
    min: float = math.inf
    max: float = -math.inf
    mean: float = 0.0
    absmean: float = 0.0
    norm: float = 0.0
    _m2: float = field(default=0.0, repr=False)

    @property
    def finite(self) -> int:
        return self.count - self.nan - self.inf

    @property
    def std(self) -> float:
        return math.sqrt(max(self._m2, 0.0) / self.finite) if self.finite else math.nan

    @property
    def absmax(self) -> float:
        return max(abs(self.min), abs(self.max)) if self.finite else math.nan

    def add(self, row: Any) -> None:
        """Joins the digest of one more piece."""
        n = int(row["count"]) - int(row["nan"]) - int(row["pos_inf"]) - int(row["neg_inf"])
        before = self.finite
        if n:
            mean, apart, total = float(row["mean"]), float(row["mean"]) - self.mean, before + n
            self._m2 += n * float(row["std"]) ** 2 + apart * apart * before * n / total
            self.mean = mean if not before else self.mean + apart * n / total
            self.absmean += (float(row["absmean"]) - self.absmean) * n / total
            self.min, self.max = min(self.min, float(row["min"])), max(self.max, float(row["max"]))
            self.norm = math.hypot(self.norm, float(row["norm"]))
        self.count += int(row["count"])
        self.nan += int(row["nan"])
        self.inf += int(row["pos_inf"]) + int(row["neg_inf"])
        self.zero += int(row["zero"])

    @property
    def flags(self) -> list[str]:
        found = []
        if self.nan:
            found.append("nan")
        if self.inf:
            found.append("inf")
        if self.count and self.zero == self.count:
            found.append("zero")
        elif self.finite > 1 and self.min == self.max:
            found.append("constant")
        if self.finite >= FEW and self.std > 0:
            furthest = max(self.max - self.mean, self.mean - self.min)
            if furthest > OUTLIER * self.std:
                found.append("outlier")
        return found

    def to_json(self) -> dict[str, Any]:
        numbers = {name: getattr(self, name) for name in ("min", "max", "mean", "std", "absmax", "absmean", "norm")}
        if not self.finite:
            numbers = dict.fromkeys(numbers, math.nan)
        return {"count": self.count, "nan": self.nan, "inf": self.inf, "zero": self.zero, **numbers}


@dataclass(frozen=True, slots=True)
class Weight:
    entry: Entry
    statistics: Statistics


Status = Literal["unchanged", "changed", "new", "missing", "dtype", "shape"]


@dataclass(frozen=True, slots=True)
class Change:
    """One name in two checkpoints. `dtype` and `shape` say that these differ; with another dtype the values are compared all the same."""

    name: str
    status: Status
    old: Entry | None
    new: Entry | None
    statistics: Statistics | None = None
    """Of the newer."""
    update_ratio: float | None = None
    max_abs: float | None = None


class Measure:
    """Reduces pieces; one for a whole checkpoint."""

    def __init__(self) -> None:
        self._block = Block(2)
        self._block.threads = min(4, os.cpu_count() or 1)

    def add(self, statistics: Statistics, piece: Array) -> None:
        if not len(piece):
            return
        self._block.clear()
        if self._block.add(0, _digestible(piece)) >= 0:
            statistics.add(rows_of(self._block)[0])

    def add_difference(self, statistics: Statistics, new: Array, old: Array) -> None:
        self._block.clear()
        if not len(new):
            return
        if new.dtype != old.dtype or new.dtype.kind not in "f" or self._block.add_difference(0, new, old) < 0:
            self._block.clear()
            wide = np.complex128 if "c" in (new.dtype.kind, old.dtype.kind) else np.float64
            with np.errstate(invalid="ignore"):
                self._block.add(0, new.astype(wide) - old.astype(wide))
        statistics.add(rows_of(self._block)[0])


def _digestible(piece: Array) -> Array:
    return piece if piece.flags.writeable else piece.copy()


def inspect(source: TensorSource, entries: list[Entry], progress: Progress = lambda size: None) -> Iterator[Weight]:
    """The statistics of each. Raises RecordingError where a tensor cannot be read."""
    measure = Measure()
    for entry in entries:
        statistics = Statistics()
        for piece in source.chunks(entry, CHUNK):
            measure.add(statistics, piece)
            progress(piece.nbytes)
        yield Weight(entry, statistics)


def label(entry: Entry) -> str:
    """What people call it: its name; in a dump the site with the step, and the rank where it is not the first."""
    if entry.step < 0:
        return entry.key.removesuffix(":value")
    return f"{entry.key} (step {entry.step}{f', rank {entry.rank}' if entry.rank else ''})"


def pair(old: list[Entry], new: list[Entry]) -> list[tuple[str, Entry | None, Entry | None]]:
    """By name, in the order of the newer and then what is only in the older. A wrapper's prefix in one of them does not matter."""
    olds, news = {label(entry): entry for entry in old}, {label(entry): entry for entry in new}
    if not olds.keys() & news.keys():
        olds, news = {_bare(name): e for name, e in olds.items()}, {_bare(name): e for name, e in news.items()}
    names = [*news, *(name for name in olds if name not in news)]
    return [(name, olds.get(name), news.get(name)) for name in names]


def _bare(key: str) -> str:
    while key.startswith(("module.", "_orig_mod.")):
        key = key.partition(".")[2]
    return key


def diff(
    old: TensorSource,
    new: TensorSource,
    pairs: list[tuple[str, Entry | None, Entry | None]],
    progress: Progress = lambda size: None,
) -> Iterator[Change]:
    """What became of each name. Raises RecordingError where a tensor cannot be read."""
    measure = Measure()
    for name, before, after in pairs:
        if before is None or after is None or before.shape != after.shape or elements(before) != elements(after):
            alike = before is not None and after is not None and before.shape == after.shape
            status: Status = "new" if before is None else "missing" if after is None else "dtype" if alike else "shape"
            statistics = None
            if after is not None:
                statistics = Statistics()
                for piece in new.chunks(after, CHUNK):
                    measure.add(statistics, piece)
                    progress(piece.nbytes)
            yield Change(name, status, before, after, statistics)
        else:
            yield _compare(name, old, new, before, after, measure, progress)


def _compare(
    name: str, old: TensorSource, new: TensorSource, before: Entry, after: Entry, measure: Measure, progress: Progress
) -> Change:
    first, last, apart = Statistics(), Statistics(), Statistics()
    same = before.dtype == after.dtype
    for a, b in zip_longest(old.chunks(before, CHUNK), new.chunks(after, CHUNK)):
        equal = a.dtype == b.dtype and np.array_equal(a.view(np.uint8), b.view(np.uint8))
        same &= equal
        measure.add(first, a)
        measure.add(last, b)
        if not equal:
            measure.add_difference(apart, b, a)
        progress(b.nbytes)
    ratio = apart.absmean * apart.finite / max(last.finite, 1) / (first.absmean + 1e-9)
    largest = apart.absmax if apart.finite else math.nan if apart.count else 0.0
    status: Status = "dtype" if before.dtype != after.dtype else "unchanged" if same else "changed"
    return Change(name, status, before, after, last, ratio, largest)
