"""Processes that meet to become the ranks of one training (`init_process_group`): each waits there until all have come.

Each says in a small file of the run where it meets the others, and as which rank of how many; it takes the file away when they have met. So whoever
watches the run sees processes that wait for each other at different places, before any of them is a rank.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from tensonde.program.lines import source_line
from tensonde.store.damage import read_file
from tensonde.store.files import replace_file
from tensonde.store.liveness import alive, identity, machine

PATIENCE = 6.0
"""Seconds after which something is said where processes cannot meet."""
ABSENT = 8.5
"""The same where they could, and some are not there: they may still be on their way."""

MOST_NAMED = 8


@dataclass(frozen=True, slots=True)
class Meeting:
    rank: int
    size: int
    place: str
    """Address and port, or the URL."""
    file: str
    line: int
    began: float = field(default_factory=time.time)
    process: dict[str, Any] = field(default_factory=identity)

    @property
    def at(self) -> str:
        return f" at {source_line(self.file, self.line)}" if self.file else ""


def _path(run: Path) -> Path:
    return run / f"meeting-{os.getpid()}.json"


def comes(run: Path, meeting: Meeting) -> None:
    with contextlib.suppress(OSError):
        replace_file(_path(run), json.dumps(asdict(meeting)).encode())


def has_met(run: Path) -> None:
    with contextlib.suppress(OSError):
        _path(run).unlink(missing_ok=True)


def read_meetings(run: Path) -> list[Meeting]:
    """Of the processes that have not met, by rank."""
    import msgspec

    found = []
    for path in run.glob("meeting-*.json"):
        with contextlib.suppress(OSError, ValueError, RecursionError):
            found.append(msgspec.json.decode(read_file(path), type=Meeting))
    return sorted(found, key=lambda one: one.rank)


def in_vain(meetings: list[Meeting], *, now: float | None = None) -> str | None:
    """Why they do not meet. `now`: a time of day; processes that are gone do not count then, and nothing is said before some of them have waited for long."""
    if now is not None:
        meetings = [one for one in meetings if one.process.get("boot") != machine() or alive(one.process)]
    waited = now - min(one.began for one in meetings) if now is not None and meetings else ABSENT
    if not meetings or waited < PATIENCE:
        return None
    one = meetings[0]
    who = f"rank {one.rank} waits in init_process_group{one.at}"
    for other in meetings[1:]:
        if other.place != one.place:
            return (
                f"{who} for the others at {one.place}, and rank {other.rank} does so at {other.place}: they never meet"
            )
        if other.size != one.size:
            return f"{who} for {one.size} ranks, and rank {other.rank} for {other.size}{other.at}"
    twice = [rank for rank, count in Counter(other.rank for other in meetings).items() if count > 1]
    if twice:
        return f"two processes wait in init_process_group{one.at}, and both say that they are rank {twice[0]}"
    there = {other.rank for other in meetings}
    absent = [str(rank) for rank in islice((rank for rank in range(one.size) if rank not in there), MOST_NAMED)]
    if absent and waited >= ABSENT:
        named = ", ".join(absent)
        return f"{who} at {one.place} for {one.size} ranks; rank{'s' if len(absent) > 1 else ''} {named} did not come there"
    return None
