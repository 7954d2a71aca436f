"""Browsers and terminals that look on, each at its own pace.

Hits, stops, findings and events are queued and never dropped: one who does not read them is told that it lags behind, and reads them again by
their numbers. States, digests and scalars are only of use while fresh: of each place the latest waits, and what it replaces is counted.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import msgspec
import numpy as np

from tensonde.digest.latest import last_rows
from tensonde.model.site import Site
from tensonde.server.health import health
from tensonde.server.live import LiveRank
from tensonde.server.numbers import numbers
from tensonde.server.reading import hit_out, site_out

Json = dict[str, Any]
Array = np.ndarray[Any, Any]
Key = tuple[str, str]
TICK = 0.2
"""Digests and scalars of a place go out at most so often."""
MOST_WAITING = 10_000
MOST_SITES = 2000
"""New sites of a tick that are sent along; of more, only how many there are, and whoever looks reads them all at once."""


def encode(message: Json) -> str:
    return msgspec.json.encode(message).decode()


class Onlooker:
    """One connection. In the event loop."""

    def __init__(self) -> None:
        self.places: set[Key] = set()
        self.dropped = 0
        self._queue: deque[str] = deque()
        self._fresh: dict[tuple[str, Key], tuple[str, int]] = {}
        self._wake = asyncio.Event()
        self._lagged = False

    def tell(self, text: str, *, instead: tuple[str, Key] | None = None) -> None:
        """What must arrive. `instead`: what waits of that kind is older, and must not come after it."""
        if instead is not None:
            self._fresh.pop(instead, None)
        if len(self._queue) >= MOST_WAITING:
            self._queue.clear()
            self._lagged = True
        self._queue.append(text)
        self._wake.set()

    def show(self, kind: str, place: Key, text: str, size: int = 0) -> None:
        """What is of use while it is fresh."""
        before = self._fresh.pop((kind, place), None)
        if before is not None:
            self.dropped += before[1]
        self._fresh[kind, place] = (text, size)
        self._wake.set()

    async def take(self) -> list[str]:
        """What is to be sent now; waits for something."""
        await self._wake.wait()
        self._wake.clear()
        found = [encode({"type": "lagged", "dropped": self.dropped})] if self._lagged else []
        self._lagged = False
        found += self._queue
        self._queue.clear()
        found += [text for text, _ in self._fresh.values()]
        self._fresh.clear()
        return found


class Gallery:
    """All onlookers. In the event loop."""

    def __init__(self) -> None:
        self.onlookers: set[Onlooker] = set()
        self._rows: dict[Key, list[Array]] = {}
        self._scalars: dict[Key, dict[str, tuple[int, float]]] = {}
        self._ranks: dict[Key, LiveRank] = {}
        self._sites: dict[Key, list[Site]] = {}
        self._site_counts: dict[Key, int] = {}

    def count(self, live: LiveRank) -> None:
        live.onlookers = len(self.looking_at((live.run, live.name)))

    def looking_at(self, place: Key) -> list[Onlooker]:
        return [one for one in self.onlookers if place in one.places]

    def tell(self, place: Key, message: Json) -> None:
        to = self.looking_at(place)
        if to:
            text = encode({**message, "run": place[0], "rank": place[1]})
            instead = (message["type"], place) if message["type"] == "state" else None
            for one in to:
                one.tell(text, instead=instead)

    def changed(self, live: LiveRank, change: Json, state: Json) -> None:
        """Something that an agent said."""
        place = (live.run, live.name)
        match change["type"]:
            case "digests" | "scalars" | "sites" if not self.looking_at(place):
                return
            case "sites":
                self._sites.setdefault(place, []).extend(change["new"])
                self._site_counts[place] = change["count"]
            case "digests":
                self._rows.setdefault(place, []).append(change["rows"])
                self._ranks[place] = live
            case "scalars":
                self._scalars.setdefault(place, {}).update(change["values"])
            case "state":
                for one in self.looking_at(place):
                    one.show(
                        "state", place, encode({"type": "state", "run": place[0], "rank": place[1], "state": state})
                    )
            case "hit":
                self.tell(place, {"type": "hit", "hit": hit_out(change["ord"], change["hit"], live.addresses)})
            case "stop":
                self.tell(place, change)
                self.tell(place, {"type": "state", "state": state})
            case _:
                self.tell(place, change)

    def tick(self) -> None:
        """Sends what is fresh. New sites come before the digests that name them."""
        sites, self._sites = self._sites, {}
        for place, new in sites.items():
            told = [site_out(site) for site in new] if len(new) <= MOST_SITES else None
            self.tell(place, {"type": "sites", "count": self._site_counts[place], "new": told})
        rows, self._rows = self._rows, {}
        for place, waiting in rows.items():
            live = self._ranks[place]
            arrived = np.concatenate(waiting)
            latest = arrived[np.sort(last_rows(arrived["site"])[1])]
            text = encode(digests_out(live, place, latest))
            for one in self.looking_at(place):
                one.show("digests", place, text, len(latest))
        scalars, self._scalars = self._scalars, {}
        for place, values in scalars.items():
            step = max((pair[0] for pair in values.values()), default=0)
            shown = {name: numbers(np.array([value]))[0] for name, (_, value) in values.items()}
            text = encode({"type": "scalars", "run": place[0], "rank": place[1], "step": step, "values": shown})
            for one in self.looking_at(place):
                one.show("scalars", place, text)


def digests_out(live: LiveRank, place: Key, rows: Array) -> Json:
    sites = rows["site"]
    return {
        "type": "digests", "run": place[0], "rank": place[1], "step": int(rows["step"].max()), "sites": sites.tolist(),
        "status": health(sites, rows, live.sites, live.last_hits(sites)), "absmax": numbers(rows["absmax"]), "norm": numbers(rows["norm"]), "dropped": live.dropped,
    }  # fmt: skip
