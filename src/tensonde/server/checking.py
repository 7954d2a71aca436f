"""Watchpoints on what was recorded: which there were, and what another one would have found."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from tensonde.digest.layout import ROW
from tensonde.model.watchpoint import Hit, Watchpoint
from tensonde.server.columns import Segment
from tensonde.server.place import Place
from tensonde.server.reading import STORED, hit_out, unknown
from tensonde.server.refusals import NotFound
from tensonde.watch.armed import Armed
from tensonde.watch.engine import Engine
from tensonde.watch.parse import watchpoint
from tensonde.watch.pattern import Pattern
from tensonde.watch.vocabulary import DERIVED

Json = dict[str, Any]
MOST_HITS = 1000
BATCH = 65_536


def recorded_watchpoints(place: Place) -> list[Watchpoint]:
    """As noted at the close; of a run that was not closed, those that it began with."""
    noted = place.session.get("watchpoints")
    if isinstance(noted, list):
        return [
            Watchpoint(int(p["id"]), p["sites"], p["condition"], p.get("action", "report"), p.get("origin", "user"))
            for p in noted
        ]
    began = (place.session.get("options") or {}).get("watches") or []
    return [
        watchpoint(f"{sites} {condition}", id=k + 1, action=action)
        for k, (sites, condition, action) in enumerate(began)
    ]


def described(place: Place, entry: Json) -> Json:
    """A watchpoint as an agent tells of it, with how many sites it watches, and what it has reported."""
    point = Watchpoint(int(entry["id"]), entry["sites"], entry["condition"], entry["action"], entry["origin"])
    return {**shown(place, [point])[0], "enabled": bool(entry.get("enabled", True))}


def shown(place: Place, points: list[Watchpoint]) -> list[Json]:
    counts = Counter(hit.watchpoint for hit in place.hits)
    return [
        {**_plain(point), "enabled": True, "hits": counts[point.id], "matches": matches(place, point)}
        for point in points
    ]


def _plain(point: Watchpoint) -> Json:
    return {
        "id": point.id,
        "sites": point.sites,
        "condition": point.condition,
        "action": point.action,
        "origin": point.origin,
    }


def matches(place: Place, point: Watchpoint) -> int:
    armed = Armed(point)
    return sum(armed.fitting(site) is not None for site in place.sites.values())


def match(place: Place, pattern: str) -> Json:
    """Raises SyntaxProblem."""
    wanted = Pattern.parse(pattern)
    found = [site.address for site in place.sites.values() if wanted.matches(site)]
    return {"count": len(found), "sites": found[:20]}


def recheck(place: Place, sites: str | None, condition: str | None, id: int | None) -> Json:
    """On every recorded digest, from the first on, as if the watchpoint had been there. `checked` are those that have all that it asks
    for, `unknown` the others: compiled graphs compute a few statistics only."""
    known = recorded_watchpoints(place)
    if condition is not None:
        chosen = [watchpoint(f"{sites or '**'} {condition}", id=0)]
    elif id is not None:
        chosen = [point for point in known if point.id == id]
        if not chosen:
            raise NotFound(f"there is no watchpoint {id}; there are {', '.join(str(p.id) for p in known) or 'none'}.")
    else:
        chosen = known
    engine = Engine(chosen, rank=place.rank)
    wanted = []
    for site in sorted(place.sites.values(), key=lambda site: site.id):
        if engine.wanted(site):
            engine.add_site(site)
            wanted.append(site.id)
    asked = sorted({name for point in chosen for name in engine.fields(point.id) if name in STORED or name in DERIVED})
    hits: list[Hit] = []
    checked = left = 0
    for segment in place.segments():
        rows = np.flatnonzero(np.isin(segment.column("site"), wanted))
        for begin in range(0, len(rows), BATCH):
            batch = rows_at(segment, rows[begin : begin + BATCH])
            lacking = int(np.any([unknown(batch.__getitem__, name) for name in asked], axis=0).sum()) if asked else 0
            checked, left = checked + len(batch) - lacking, left + lacking
            hits += engine.evaluate(batch)
    names = place.addresses
    return {
        "hits": [hit_out(k, hit, names) for k, hit in enumerate(hits[:MOST_HITS])],
        "checked": checked,
        "unknown": left,
    }


def rows_at(segment: Segment, rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    found = np.zeros(len(rows), ROW)
    for name in ROW.names or ():
        if name != "reserved":
            found[name] = segment.column(name)[rows]
    return found
