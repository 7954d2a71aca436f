"""The ranks of a run side by side: how far each is, a site on all of them, who keeps the others waiting, and what was found."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensonde.server import reading
from tensonde.server.columns import gather, thin
from tensonde.server.numbers import number, numbers
from tensonde.server.place import Place
from tensonde.store.codec import finding_out
from tensonde.store.collectives import Call, read_collectives
from tensonde.store.files import plain
from tensonde.store.standing import signature

Json = dict[str, Any]
Array = np.ndarray[Any, Any]
CURVE = 200


def side_by_side(places: list[Place], states: list[Json], address: str, field: str, points: int) -> Json:
    """`states` are those of the run's list, in the order of `places`."""
    waits = waiting(places)
    return {
        "ranks": [_row(place, state, waits) for place, state in zip(places, states, strict=True)],
        "site": heat(places, address, field, points) if address else None,
        "waiting": {name: waits[name] for name in ("calls", "steps", "slowest", "sentence")},
        "findings": findings(places),
    }


def _row(place: Place, state: Json, waits: Json) -> Json:
    steps, values = place.scalars().get("loss", (np.empty(0), np.empty(0)))
    rows = thin(np.asarray(values, np.float64), CURVE) if len(values) else np.empty(0, np.int64)
    together = state.get("together") or {}
    return {
        "name": place.name, "rank": place.rank, "state": state["state"], "step": state["step"], "host": state.get("host"),
        "steps_per_second": state.get("steps_per_second"), "memory": state.get("memory"),
        "loss": {"step": np.asarray(steps)[rows].astype(np.int64).tolist(), "value": numbers(np.asarray(values, np.float64)[rows])},
        "waited": waits["waited"].get(place.name), "waited_for": waits["waited_for"].get(place.name), "inside": together.get("waiting"),
        "stop": state.get("stop"),
    }  # fmt: skip


# -- a site on all ranks -----------------------------------------------------------------------------


def heat(places: list[Place], address: str, field: str, points: int) -> Json:
    """A row per rank, a column per step; None where a rank has no digest of that step. A site that no rank has is wrong use."""
    found = [(place, place.addresses.get(address)) for place in places]
    if all(site is None for _, site in found):
        reading.known_site(places[0], address)
    series: list[dict[int, float]] = []
    for place, site in found:
        if site is None:
            series.append({})
            continue
        columns = gather(place.segments(), site.id, reading.columns_of([field]), None)
        values = zip(columns["step"].astype(np.int64).tolist(), reading.listed(columns.__getitem__, field), strict=True)
        series.append({step: float(value) for step, value in values if value is not None})
    steps = np.array(sorted(set().union(*series)), np.int64)
    whole = np.array([[one.get(step, np.nan) for step in steps.tolist()] for one in series], np.float64)
    missing = np.array([[step not in one for step in steps.tolist()] for one in series], bool)
    whole = whole.reshape(len(series), len(steps))
    missing = missing.reshape(len(series), len(steps))
    low, high, spread = bands(whole, missing)
    kept = (
        thin(np.nan_to_num(spread, nan=0.0, posinf=np.finfo(np.float64).max), points)
        if len(steps)
        else np.empty(0, np.int64)
    )
    shown = [
        [None if gone else number(value) for value, gone in zip(row[kept].tolist(), out[kept].tolist(), strict=True)]
        for row, out in zip(whole, missing, strict=True)
    ]
    return {
        "address": address, "field": field, "step": steps[kept].tolist(), "values": shown, "thinned": len(kept) < len(steps),
        "min": numbers(low[kept]), "max": numbers(high[kept]), "spread": [None if np.isnan(value) else number(value) for value in spread[kept].tolist()],
    }  # fmt: skip


def bands(values: Array, missing: Array) -> tuple[Array, Array, Array]:
    """Smallest, largest and their distance over the ranks, of those that are numbers; NaN where none is. A rank that has NaN where
    others have numbers is infinitely far from them; where fewer than two have anything, there is no distance."""
    if not values.size:
        return np.empty(0), np.empty(0), np.empty(0)
    none = np.isnan(values).all(axis=0)
    low = np.where(none, np.nan, np.where(np.isnan(values), np.inf, values).min(axis=0))
    high = np.where(none, np.nan, np.where(np.isnan(values), -np.inf, values).max(axis=0))
    apart = (np.isnan(values) & ~missing).any(axis=0) & ~none
    with np.errstate(invalid="ignore"):
        spread = np.where(apart, np.inf, high - low)
    return low, high, np.where((~missing).sum(axis=0) > 1, spread, np.nan)


# -- who waits for whom ------------------------------------------------------------------------------


def waiting(places: list[Place]) -> Json:
    """From the collectives that several ranks have recorded. All leave one at about the same time, so who was in it for the shortest
    time came last, and the others have waited for it by as much as they were longer in it. No clocks are compared."""
    calls: dict[tuple[Any, ...], dict[str, Call]] = {}
    for place in places:
        for call in read_collectives(place.folder) if place.folder is not None else ():
            if call.seconds is not None:
                calls.setdefault(signature(call), {})[place.name] = call
    shared = [found for found in calls.values() if len(found) > 1]
    waited = dict.fromkeys((place.name for place in places), 0.0)
    last = dict.fromkeys(waited, 0.0)
    lines: dict[tuple[str, str], float] = {}
    for found in shared:
        late = min(found, key=lambda name: found[name].seconds or 0.0)
        shortest = found[late].seconds or 0.0
        lost = [(name, (call.seconds or 0.0) - shortest) for name, call in found.items()]
        for name, seconds in lost:
            waited[name] += seconds
        cost = max(seconds for _, seconds in lost)
        last[late] += cost
        where = str(found[late].kind.source or found[late].kind)
        lines[late, where] = lines.get((late, where), 0.0) + cost
    if not shared:
        return {"waited": {}, "waited_for": {}, "calls": 0, "steps": None, "slowest": None, "sentence": None}
    steps = [call.step for found in shared for call in found.values()]
    slowest = max(last, key=lambda name: last[name])
    where = max((line for line in lines if line[0] == slowest), key=lambda line: lines[line])[1]
    sentence = f"the others have waited {last[slowest]:.3g} s for {slowest}, most of it at {where}"
    return {
        "waited": waited, "waited_for": last, "calls": len(shared), "steps": [min(steps), max(steps)],
        "slowest": slowest, "sentence": sentence,
    }  # fmt: skip


# -- what was found ----------------------------------------------------------------------------------


def findings(places: list[Place]) -> list[Json]:
    """Each once, with the ranks that it holds for; in the order of the first rank that has it."""
    found: dict[tuple[Any, ...], Json] = {}
    for place in places:
        for finding in place.findings:
            shown = plain(finding_out(finding))
            source = shown.get("source") or {}
            key = (finding.rule, finding.site, source.get("file"), source.get("line"))
            entry = found.setdefault(key, {**shown, "ranks": []})
            more = [finding.rank, *(one.rank for one in finding.places)]
            entry["ranks"] = sorted({*entry["ranks"], *more})
    return list(found.values())
