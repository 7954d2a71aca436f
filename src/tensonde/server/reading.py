"""Answers from digests, scalars, hits and events of a place, as plain values in the shape of `models`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np

from tensonde.digest.layout import COMPUTED_BY, COUNTS, EXPONENT_BINS, PARTIAL, STATS, not_computed
from tensonde.errors import UsageError
from tensonde.model.facts import MemoryFact
from tensonde.model.memory import NAMES
from tensonde.model.moment import Phase
from tensonde.model.site import Site
from tensonde.model.watchpoint import Hit
from tensonde.program.lines import to_json
from tensonde.server.columns import Segment, gather, latest, thin
from tensonde.server.health import COLUMNS, health, last_hits
from tensonde.server.numbers import numbers
from tensonde.server.place import Place
from tensonde.server.refusals import NotFound
from tensonde.store.codec import finding_out
from tensonde.store.files import plain
from tensonde.watch.pattern import Pattern
from tensonde.watch.suggest import nearest
from tensonde.watch.vocabulary import DERIVED

Json = dict[str, Any]
Array = np.ndarray[Any, Any]
STORED = (*COUNTS, *STATS)
DIGEST = (*STORED, "flags")
"""The columns that `digest_out` needs."""
_PHASES = {int(phase): str(phase) for phase in Phase}


def site_out(site: Site) -> Json:
    return {
        "id": site.id, "address": site.address, "name": site.name, "role": str(site.role), "kind": str(site.kind),
        "index": site.index, "type": site.type, "trainable": site.trainable, "shape": list(site.shape),
        "dtype": site.dtype, "source": to_json(site.source),
    }  # fmt: skip


def hit_out(ord: int, hit: Hit, sites: dict[str, Site]) -> Json:
    known = sites.get(hit.site)
    preset, actual = hit.met()
    return {
        "ord": ord, "watchpoint": hit.watchpoint, "site": hit.site, "step": hit.moment.step,
        "phase": str(hit.moment.phase), "call": hit.moment.call, "condition": hit.condition,
        "preset": plain(preset), "actual": plain(actual),
        "source": to_json(known.source) if known is not None else None,
    }  # fmt: skip


def known_site(place: Place, address: str) -> Site:
    """Raises NotFound with a sentence."""
    known = place.addresses
    found = known.get(address)
    if found is None:
        close = nearest(address, known)
        hint = f"; the nearest are {', '.join(close)}" if close else ""
        raise NotFound(f"there is no site {address!r} in {place.name}{hint}.")
    return found


def field(segment_column: Any, name: str) -> Array:
    """A stored or derived field of rows; `segment_column` gives a stored one."""
    if name in STORED or name in ("step", "call"):
        return np.asarray(segment_column(name), np.float64)
    with np.errstate(all="ignore"):
        return np.asarray(DERIVED[name][1](lambda other: field(segment_column, other)), np.float64)


def listed(column: Any, name: str) -> list[Any]:
    """A stored or derived field of rows as JSON has it: None where it was not computed. `column` gives a stored one."""
    found = numbers(field(column, name))
    if found:
        for k in np.flatnonzero(unknown(column, name)).tolist():
            found[k] = None
    return found


def unknown(column: Any, name: str) -> Array:
    """In which rows a stored or derived field was not computed."""
    found = [not_computed(source, column) for source in sources_of(name) if source in STORED]
    return np.any(found, axis=0) if found else np.zeros(len(column("step")), bool)


def columns_of(names: Iterable[str]) -> list[str]:
    """The columns that `listed` needs for these fields."""
    return sorted({*COMPUTED_BY, *(source for name in names for source in sources_of(name))})


def sources_of(name: str) -> list[str]:
    """Which stored fields a field is made of."""
    if name in STORED or name in ("step", "call"):
        return [name]
    if name not in DERIVED:
        raise UsageError(f"there is no field {name!r}; there are {', '.join((*STORED, *DERIVED))}.")
    asked: list[str] = []

    def get(other: str) -> Array:
        asked.extend(sources_of(other))
        return np.ones(1)

    DERIVED[name][1](get)
    return asked


def digests(place: Place, address: str, fields: list[str], steps: tuple[int, int] | None, points: int) -> Json:
    site = known_site(place, address)
    columns = gather(place.segments(), site.id, ("call", "phase", *columns_of(fields)), steps)
    total = len(columns["step"])
    rows = thin(field(columns.__getitem__, fields[0] if fields else "step"), points)
    columns = {name: column[rows] for name, column in columns.items()}
    return {
        "site": address,
        "step": columns["step"].astype(np.int64).tolist(),
        "call": columns["call"].astype(np.int64).tolist(),
        "phase": [_PHASES.get(int(code), str(code)) for code in columns["phase"].tolist()],
        "fields": {name: listed(columns.__getitem__, name) for name in fields},
        "thinned": len(rows) < total,
    }


def histograms(place: Place, address: str, steps: tuple[int, int] | None, points: int) -> Json:
    site = known_site(place, address)
    columns = gather(place.segments(), site.id, ("exponents", "flags"), steps)
    made = (columns["flags"].astype(np.int64) & PARTIAL) == 0  # a compiled graph counts no magnitudes
    columns = {name: column[made] for name, column in columns.items()}
    total = len(columns["step"])
    rows = np.unique(np.linspace(0, total - 1, min(points, total)).astype(np.int64)) if total else np.empty(0, np.int64)
    counts = columns["exponents"][rows] if total else np.empty((0, EXPONENT_BINS))
    edges = [0.0, *(2.0 ** (2 * k - 40) for k in range(1, EXPONENT_BINS)), "Infinity"]
    return {
        "site": address, "step": columns["step"][rows].astype(np.int64).tolist() if total else [],
        "edges": edges, "counts": counts.astype(np.int64).tolist(),
    }  # fmt: skip


def status(place: Place, step: int | None, by: str) -> Json:
    at = place.last_step if step is None else step
    wanted = "absmax" if by == "health" else by
    sites, columns = _latest_columns(place.segments(), at, list(dict.fromkeys([*COLUMNS, *columns_of([wanted])])))
    values, known = listed(columns.__getitem__, wanted), place.sites
    return {
        "step": at, "sites": sites.tolist(), "value": values, "seen": columns["step"].astype(np.int64).tolist(),
        "status": health(sites, columns, known, last_hits(sites, known, place.hits, at)),
    }  # fmt: skip


def _latest_columns(segments: list[Segment], at: int | None, names: list[str]) -> tuple[Array, dict[str, Array]]:
    sites, picked = latest(segments, at)
    columns = {
        name: np.concatenate([segment.column(name)[rows] for segment, rows in picked]) if picked else np.empty(0)
        for name in names
    }
    return sites.astype(np.int64), columns


def latest_digests(place: Place, pattern: str, step: int | None, limit: int) -> list[Json]:
    wanted = Pattern.parse(pattern) if pattern else None
    known = place.sites
    ids, columns = _latest_columns(place.segments(), step, ["step", "call", "phase", *DIGEST])
    matching = [
        (id, k)
        for k, id in enumerate(ids.tolist())
        if (site := known.get(id)) is not None and (wanted is None or wanted.matches(site))
    ]
    chosen = sorted(matching)[:limit]
    columns = {name: column[[k for _, k in chosen]] for name, column in columns.items()}
    return [
        {
            "address": known[id].address, "step": int(columns["step"][k]), "call": int(columns["call"][k]),
            "phase": _PHASES.get(int(columns["phase"][k]), str(columns["phase"][k])), "digest": digest,
        }
        for k, ((id, _), digest) in enumerate(zip(chosen, digests_out(columns), strict=True))
    ]  # fmt: skip


def digests_of(place: Place, sites: Iterable[Site], step: int | None) -> dict[str, Json]:
    """By address, the latest digest of these sites at or before a step, with its step."""
    found: dict[str, Json] = {}
    until = (0, 1 << 62 if step is None else step)
    segments = place.segments()
    for site in sites:
        columns = gather(segments, site.id, ("step", *DIGEST), until)
        if len(columns["step"]):
            found[site.address] = {
                "digest": digest_out({name: columns[name][-1] for name in DIGEST}), "step": int(columns["step"][-1]),
            }  # fmt: skip
    return found


def digest_out(row: Any) -> Json:
    """All fields, stored and derived, of one row; None for those that were not computed."""
    return digests_out({name: np.asarray([row[name]]) for name in DIGEST})[0]


def digests_out(columns: dict[str, Array]) -> list[Json]:
    """`digest_out` of many rows."""
    found = {name: listed(columns.__getitem__, name) for name in (*STORED, *DERIVED)}
    for name in COUNTS:
        found[name] = [None if count is None else int(count) for count in found[name]]
    return [dict(zip(found, row, strict=True)) for row in zip(*found.values(), strict=True)]


def scalars(place: Place, name: str, points: int) -> Json:
    found = place.scalars().get(name)
    if found is None:
        raise NotFound(f"there is no scalar {name!r}; there are {', '.join(place.scalars()) or 'none so far'}.")
    steps, values = found
    rows = np.flatnonzero(np.isin(steps, steps[thin(values, points)]))  # steps stay whole: one may have several losses
    return {
        "name": name, "step": steps[rows].tolist(), "value": numbers(values[rows]), "thinned": len(rows) < len(steps),
    }  # fmt: skip


def hits(place: Place, after: int, limit: int) -> Json:
    found, known = place.hits, place.addresses
    first = max(after + 1, 0)
    return {
        "hits": [hit_out(first + k, hit, known) for k, hit in enumerate(found[first : first + limit])],
        "total": len(found),
    }


def events(place: Place, after: int, limit: int) -> Json:
    found = place.events
    first = max(after + 1, 0)
    shown = [{**plain(event), "ord": first + k} for k, event in enumerate(found[first : first + limit])]
    return {"events": shown, "total": len(found)}


def findings(place: Place) -> list[Json]:
    return [plain(finding_out(finding)) for finding in place.findings]


def memory(place: Place) -> Json | None:
    """None where nothing was seen."""
    if not (told := place.facts.get("memory")):
        return None
    fact = msgspec.convert(told, MemoryFact)
    return {**msgspec.to_builtins(fact), "names": NAMES} if fact.peak else None


def settings(place: Place) -> Json:
    """Optimizers as they are; modules with what was set for each."""
    facts = plain(place.facts)
    modules = [
        {"name": name, **entry} for name, entry in (facts.get("modules") or {}).items() if isinstance(entry, dict)
    ]
    optimizers = [entry for entry in facts.get("optimizers") or [] if isinstance(entry, dict)]
    return {"optimizers": optimizers, "modules": modules}
