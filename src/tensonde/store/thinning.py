"""A recording keeps to a size, however long the training: the older its steps are, the fewer of them it keeps.

The newest segments of a table stay as they are. Of older ones, each site keeps every second of the steps that it was looked at, then every fourth, and so
on. Two neighbours become one segment with each of these, `000000-000001.parquet`, so there are not ever more files. Steps that something points to (a
hit, a trace, a saved step) stay whole.
"""

from __future__ import annotations

import contextlib
import logging
import re
import threading
from collections.abc import Collection
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from tensonde.store.format import CLOSED, LIVE

log = logging.getLogger("tensonde.store")

NEWEST = 0.25
"""The share of the size that the newest segments have, which stay as they are."""
MOST_SPARED = 4096
LEVELS = 40
_LEVEL = b"tensonde.level"
_NAME = re.compile(r"\d{1,12}(-\d{1,12})?")

Array = np.ndarray[Any, Any]


def current(stems: Collection[str]) -> list[str]:
    """Those that hold rows of their own, in order. A file that others were brought together in may be there before these are gone."""
    found: list[str] = []
    covered = -1
    for first, last, stem in sorted((*_span(stem), stem) for stem in stems if _NAME.fullmatch(stem)):
        if first > covered:
            found.append(stem)
        elif last > covered:
            found[-1] = stem  # the wider of two that begin together
        covered = max(covered, last)
    return found


def _span(stem: str) -> tuple[int, int]:
    """The first and last of the segments that a file holds."""
    first, _, last = stem.partition("-")
    return int(first), int(last or first)


@dataclass(frozen=True, slots=True)
class _Segment:
    path: Path
    size: int
    level: int

    @property
    def numbers(self) -> tuple[int, int]:
        return _span(self.path.stem)


class Thinning:
    """Keeps the tables of one rank to a size. Any thread may call any method."""

    def __init__(self, limits: dict[str, int]) -> None:
        """`limits`: bytes, by the names of the tables' folders; 0 is no limit."""
        self._limits = limits
        self._spared: set[int] = set()
        self._levels: dict[Path, int] = {}
        self._turn = threading.Lock()

    def spare(self, step: int) -> None:
        """This step stays whole, and the one before it, which it may be compared with."""
        if len(self._spared) < MOST_SPARED:
            self._spared.update((step - 1, step))

    def after(self, segment: Path) -> None:
        """Once a segment has become Parquet. Raises what reading and writing raise; no row is lost then that would have stayed."""
        limit = self._limits.get(segment.parent.name, 0)
        with self._turn:
            while limit and (chosen := _next(self._segments(segment.parent), limit)) is not None:
                target = _thin(chosen, np.array(sorted(self._spared.copy()), dtype=np.int64))
                self._levels[target] = chosen[0].level + 1

    def _segments(self, folder: Path) -> list[_Segment]:
        paths = {path.stem: path for path in folder.glob(f"*{CLOSED}") if not path.with_suffix(LIVE).exists()}
        found = [paths[stem] for stem in current(paths)]
        return [_Segment(path, path.stat().st_size, self._levels.get(path, 0)) for path in found]


def one_in(schema: Any) -> int:
    """How many steps one is kept of, by the schema of a Parquet file."""
    try:
        level = int((schema.metadata or {}).get(_LEVEL, 0))
    except ValueError:
        return 1
    return 1 << min(max(level, 0), LEVELS)


def _next(segments: list[_Segment], limit: int) -> list[_Segment] | None:
    """What is thinned next: of the least thinned that are not among the newest, the oldest two neighbours, or the only one. None: it all fits."""
    if sum(segment.size for segment in segments) <= limit:
        return None
    older, newest = list(segments), 0
    while older and newest + older[-1].size <= NEWEST * limit:
        newest += older.pop().size
    if older and len(older) == len(segments):
        older.pop()  # one that alone is more than the newest may have stays whole all the same
    least = min((segment.level for segment in older), default=LEVELS)
    if least >= LEVELS:
        return None
    for one, other in pairwise(older):
        if one.level == other.level == least and other.numbers[0] == one.numbers[1] + 1:
            return [one, other]
    return [next(segment for segment in older if segment.level == least)]


def _thin(segments: list[_Segment], spared: Array) -> Path:
    """Rewrites them as one file, which is whole on the disk before what it replaces goes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from tensonde.store.segments import replace_with

    level = segments[0].level + 1
    tables = [pq.ParquetFile(segment.path).read() for segment in segments]
    columns = tables[0].schema.names
    whole = pa.concat_tables([table.select(columns).replace_schema_metadata(None) for table in tables])
    keys = (
        np.asarray(whole["site"]) if "site" in columns else np.unique(np.asarray(whole["name"]), return_inverse=True)[1]
    )
    kept = whole.filter(pa.array(halved(keys, np.asarray(whole["step"]), spared)))
    first, last = segments[0].numbers[0], segments[-1].numbers[1]
    name = f"{first:06d}" if first == last else f"{first:06d}-{last:06d}"
    target = replace_with(kept.replace_schema_metadata({_LEVEL: str(level)}), segments[0].path.with_name(name + CLOSED))
    for segment in segments:
        if segment.path != target:
            with contextlib.suppress(OSError):
                segment.path.unlink()
    log.debug("%s: %d of %d rows are kept", target, kept.num_rows, whole.num_rows)
    return target


def halved(keys: Array, steps: Array, spared: Array) -> Array:
    """Which rows stay, of sites (or names) and the steps they are of: of each two steps of a site, the rounder number, so that sites keep the same
    steps where they were looked at together."""
    order = np.lexsort((steps, keys))
    key, step = keys[order], steps[order]
    fresh = np.ones(len(order), dtype=bool)
    fresh[1:] = (key[1:] != key[:-1]) | (step[1:] != step[:-1])
    key, step = key[fresh], step[fresh]
    place = np.arange(len(key))
    begins = np.ones(len(key), dtype=bool)
    begins[1:] = key[1:] != key[:-1]
    within = place - np.maximum.accumulate(np.where(begins, place, 0))
    round_ = np.where(step == 0, np.int64(1) << 62, step & -step)
    after = np.zeros(len(key), dtype=round_.dtype)
    after[:-1] = np.where(begins[1:], 0, round_[1:])
    before = np.zeros_like(after)
    before[1:] = round_[:-1]
    stays = np.where(within % 2 == 0, round_ >= after, round_ > before) | np.isin(step, spared)
    found = np.zeros(len(order), dtype=bool)
    found[order] = stays[np.cumsum(fresh) - 1]
    return found
