"""What there is to draw in a recording: numbers over steps, with names, one process at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from tensonde.digest.layout import STATS
from tensonde.errors import UsageError
from tensonde.store.query import query
from tensonde.store.reader import Rank, Recording
from tensonde.watch.pattern import Pattern


class Point(NamedTuple):
    step: int
    name: str
    value: float
    time: float
    """Seconds since 1970: when the session began and how long its steps took."""


def points(recording: Recording, rank: Rank, sites: str, fields: Sequence[str]) -> Iterator[Point]:
    """Scalars under their own names, digests as `field/site`; in the order of steps."""
    for field in fields:
        if field not in STATS:
            raise UsageError(f"digests have no field {field!r}; there are {', '.join(STATS)}.")
    clock = _clock(rank)
    found = [(row["step"], row["name"], row["value"]) for row in rank.scalars().to_pylist()]
    pattern = Pattern.parse(sites)
    chosen = {site.id: site.address for site in rank.sites.values() if pattern.matches(site)} if fields else {}
    if chosen:
        table = rank.digests(sites=list(chosen), columns=["step", "site", *fields])
        last: dict[tuple[int, str], float] = {}  # a site that is called several times in a step: its last call
        for row in table.to_pylist():
            for field in fields:
                last[(row["step"], f"{field}/{chosen[row['site']]}")] = row[field]
        found += [(step, name, value) for (step, name), value in last.items()]
    for step, name, value in sorted(found, key=lambda entry: entry[0]):
        if value is not None:
            yield Point(step, name, value, clock(step))


def texts(recording: Recording, rank: Rank) -> list[tuple[int, str]]:
    """Findings as sentences, with their steps."""
    sql = f"SELECT step, severity, title, file, line, advice FROM findings WHERE process = '{rank.name}' ORDER BY ord"
    found = []
    for row in query(recording, sql).to_pylist():
        where = f" ({row['file']}:{row['line']})" if row["file"] else ""
        found.append((int(row["step"] or 0), f"**{row['severity']}**: {row['title']}{where}. {row['advice']}"))
    return found


def _clock(rank: Rank):  # type: ignore[no-untyped-def]
    """From steps to seconds."""
    try:
        start = datetime.fromisoformat(str(rank.session["started"])).timestamp()
    except (KeyError, ValueError):
        start = datetime.now(UTC).timestamp()
    ends: dict[int, float] = {}
    now = start
    for row in rank.scalars("step_seconds").to_pylist():
        value = row["value"]
        now += value if value == value else 0.0
        ends[row["step"]] = now
    return lambda step: ends.get(step, now)
