"""Asks conditions that compare ranks of what the ranks have recorded, while they run. No rank is asked anything."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from tensonde.model.watchpoint import Action, Hit, Watchpoint

if TYPE_CHECKING:
    from tensonde.store.reader import Rank, Recording
    from tensonde.watch.across import AcrossRanks

MOST_SAID = 5
PATIENCE = 20.0
"""Seconds that ranks which have written nothing are waited for. Those of another machine never come."""


class RankConditions:
    """Hits go to `hits.jsonl` of the run, and the first ones to standard error."""

    def __init__(self, run: Path, watches: Iterable[tuple[str, str, Action]]) -> None:
        self._run = run
        self._watchpoints = [Watchpoint(k, *watch) for k, watch in enumerate(watches, 1)]
        self.active = any("differs" in point.condition or "spread" in point.condition for point in self._watchpoints)
        self._read: dict[str, dict[str, tuple[str, int, int]]] = {}
        self._last: dict[str, int] = {}
        self._across: AcrossRanks | None = None
        self._count = 0
        self._since = time.monotonic()

    def look(self, recording: Recording, *, last: bool = False) -> None:
        """`last`: nothing more will come."""
        from tensonde.store.codec import hit_out
        from tensonde.store.files import dump_json
        from tensonde.store.format import HITS
        from tensonde.store.standing import members
        from tensonde.watch.across import AcrossRanks

        across = self._across = self._across or AcrossRanks(self._watchpoints)
        ranks = {rank.rank: rank for rank in members(recording.ranks) if rank.session.get("world_size", 1) > 1}
        size = max((int(rank.session.get("world_size") or 0) for rank in ranks.values()), default=0)
        if not across.active or len(ranks) < 2:
            return
        if len(ranks) < size and not last and time.monotonic() - self._since < PATIENCE:
            return
        for number, rank in ranks.items():
            self._take(across, number, rank)
        found = across.hits(ranks)
        if found:
            with open(self._run / HITS, "ab") as file:
                file.writelines(dump_json(hit_out(hit)) + b"\n" for hit in found)
        for hit in found:
            self._count += 1
            if self._count <= MOST_SAID:
                print(f"tensonde: {said(hit, len(ranks))}", file=sys.stderr, flush=True)
        if last and self._count > MOST_SAID:
            print(f"tensonde: {self._count - MOST_SAID} more hits of conditions that compare ranks", file=sys.stderr)

    def _take(self, across: AcrossRanks, number: int, rank: Rank) -> None:
        """What the rank has recorded since the last look."""
        from tensonde.store.columns import digest_rows

        wanted = across.sites(number, rank.sites.values())
        stamps, before = rank.digest_table.stamps(), self._read.get(rank.name, {})
        for segment, stamp in stamps.items():
            if before.get(segment) == stamp or not wanted:
                continue
            rows, order = digest_rows(rank.digest_table.segment(segment, rank.digest_table.schema.names), wanted)
            fresh = order > self._last.get(rank.name, -1)
            if fresh.any():
                across.take(number, rows[fresh])
                self._last[rank.name] = int(order[fresh].max())
        self._read[rank.name] = stamps


def said(hit: Hit, ranks: int) -> str:
    actual = ", ".join(f"{name} = {value:.6g}" for name, value in hit.actual.items() if name != "differs")
    return f"{hit.site}: {hit.condition} over {ranks} ranks in step {hit.moment.step}" + (
        f" ({actual})" if actual else ""
    )
