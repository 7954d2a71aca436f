"""A place is a run and one of its ranks. History comes from the recording, where the hub can read it; what is newer, and all of it
where the hub cannot, from the agent."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tensonde.model.finding import Finding
from tensonde.model.site import Site
from tensonde.model.watchpoint import Hit
from tensonde.server.columns import RowSegment, Segment
from tensonde.server.recorded import RecordedRank
from tensonde.store.values import Value

if TYPE_CHECKING:
    from tensonde.server.live import LiveRank

Array = np.ndarray[Any, Any]


class Place:
    """Any thread. Shared values: nobody writes into them."""

    def __init__(self, run: str, name: str, recorded: RecordedRank | None, live: LiveRank | None = None) -> None:
        self.run, self.name, self.recorded, self.live = run, name, recorded, live

    @property
    def rank(self) -> int:
        return self.live.rank if self.live is not None else self.recorded.rank if self.recorded is not None else 0

    @property
    def sites(self) -> dict[int, Site]:
        stored = self.recorded.sites if self.recorded is not None else {}
        streamed = self.live.sites if self.live is not None else {}
        return streamed if len(streamed) > len(stored) else stored

    @property
    def addresses(self) -> dict[str, Site]:
        """The sites by their addresses."""
        stored = self.recorded.addresses if self.recorded is not None else {}
        streamed = self.live.addresses if self.live is not None else {}
        return streamed if len(streamed) > len(stored) else stored

    def segments(self) -> list[Segment]:
        found = self.recorded.segments() if self.recorded is not None else []
        if self.live is not None:
            rows = self.live.store.rows()
            if found and len(rows):
                stored = found[-1].column("ord")
                rows = rows[rows["ord"] > (int(stored[-1]) if len(stored) else -1)]
            if len(rows):
                found = [*found, RowSegment(rows)]
        return found

    @property
    def hits(self) -> list[Hit]:
        stored = self.recorded.hits if self.recorded is not None else []
        if self.live is not None and len(self.live.hits) > len(stored):
            return list(self.live.hits)
        return stored

    @property
    def findings(self) -> list[Finding]:
        return self.recorded.findings if self.recorded is not None else []

    @property
    def events(self) -> list[dict[str, Any]]:
        if self.recorded is not None:
            return self.recorded.events
        return list(self.live.events) if self.live is not None else []

    @property
    def facts(self) -> dict[str, Any]:
        return self.recorded.facts if self.recorded is not None else {}

    @property
    def values(self) -> list[Value]:
        return self.recorded.values if self.recorded is not None else []

    def scalars(self) -> dict[str, tuple[Array, Array]]:
        stored = self.recorded.scalars() if self.recorded is not None else {}
        if self.live is None:
            return stored
        found = dict(stored)
        for name, (steps, values) in self.live.scalars().items():
            known = stored.get(name)
            if known is None or not len(known[0]):
                found[name] = (steps, values)
            else:
                newer = steps > known[0][-1]
                found[name] = (np.append(known[0], steps[newer]), np.append(known[1], values[newer]))
        return found

    @property
    def session(self) -> dict[str, Any]:
        if self.recorded is not None:
            return self.recorded.session
        return self.live.facts if self.live is not None else {}

    @property
    def folder(self) -> Path | None:
        return self.recorded.folder if self.recorded is not None else None

    @property
    def last_step(self) -> int:
        stored = self.recorded.last_step if self.recorded is not None else -1
        return max(stored, self.live.step if self.live is not None else -1)
