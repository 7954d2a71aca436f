"""A recording at a glance, as plain values: what `tensonde show` prints and what its --json says."""

from __future__ import annotations

from typing import Any

from tensonde.model.site import Site
from tensonde.store.codec import finding_out, hit_out
from tensonde.store.query import query
from tensonde.store.reader import Rank, Recording

Json = dict[str, Any]


def overview(recording: Recording, steps: tuple[int, int] | None, limit: int) -> Json:
    """The header's facts, scalars as series, hits, findings, and the sites that stand out most.

    Damage that was met on the way is under `problems`.
    """
    manifest, first = recording.manifest, recording.ranks[0].session if recording.ranks else {}
    facts: Json = {
        "run": recording.name,
        "path": str(recording.path),
        "script": manifest.get("script"),
        "argv": manifest.get("argv") or [],
        "started": manifest.get("started"),
        "framework": " ".join(str(first[key]) for key in ("framework", "framework_version") if first.get(key)),
        "device": first.get("device"),
        "python": first.get("python"),
        "state": recording.state,
        "ranks": [_rank(rank) for rank in recording.ranks],
        "steps": max((_steps(rank) for rank in recording.ranks), default=0),
        "seconds": max((rank.seconds or 0.0 for rank in recording.ranks), default=0.0),
        "exit": {"code": manifest.get("exit_code"), **(first.get("exit") or {})},
        "overhead": first.get("overhead"),
        "coverage": first.get("coverage"),
        "thinned": recording.ranks[0].thinned if recording.ranks else {},
        "failures": first.get("failures") or {},
        "scalars": {name: series for rank in recording.ranks[:1] for name, series in _series(rank, steps).items()},
        "hits": [hit_out(hit) for hit in recording.hits if _within(hit.moment.step, steps)],
        "findings": [finding_out(finding) for finding in recording.findings],
        "sites": prominent(recording, steps, limit),
    }
    return {**facts, "problems": recording.problems}


def _rank(rank: Rank) -> Json:
    return {"rank": rank.rank, "process": rank.name, "state": rank.state, "steps": _steps(rank)}


def _steps(rank: Rank) -> int:
    """As counted at the close, or else from the last step that left a trace."""
    given = rank.session.get("steps")
    if isinstance(given, int):
        return given
    last = -1
    for table in (rank.scalars(), rank.digests(columns=["step"])):
        if table.num_rows:
            last = max(last, max(table["step"][-1].as_py(), table["step"][0].as_py()))
    return last + 1


def _series(rank: Rank, steps: tuple[int, int] | None) -> dict[str, list[tuple[int, float]]]:
    series: dict[str, list[tuple[int, float]]] = {}
    table = rank.scalars()
    rows = zip(*(table[name].to_pylist() for name in ("step", "name", "value")), strict=True)
    for step, name, value in rows:
        if _within(step, steps):
            series.setdefault(name, []).append((step, value))
    return series


def _within(step: int, steps: tuple[int, int] | None) -> bool:
    return steps is None or steps[0] <= step <= steps[1]


def prominent(recording: Recording, steps: tuple[int, int] | None, limit: int) -> list[Json]:
    """Sites with NaN or Inf first, in the order that they went bad, then those with the largest norm and
    absmax."""
    where = f"WHERE step BETWEEN {int(steps[0])} AND {int(steps[1])}" if steps else ""
    sql = f"""
        SELECT site, any_value(type) AS type, count(*) AS digests, max(norm) AS norm, max(absmax) AS absmax,
               sum("nan")::BIGINT AS nan, sum(pos_inf + neg_inf)::BIGINT AS inf, min(zeros) AS zeros,
               min(step) FILTER ("nan" + pos_inf + neg_inf > 0) AS bad_from,
               min((step, ord)) FILTER ("nan" + pos_inf + neg_inf > 0) AS bad_order
        FROM digests {where} GROUP BY site
        ORDER BY bad_order NULLS LAST, norm DESC NULLS LAST, absmax DESC NULLS LAST, site
        {f"LIMIT {int(limit)}" if limit else ""}"""
    rows = query(recording, sql).drop_columns(["bad_order"]).to_pylist()
    return [{**row, "flags": _flags(row)} for row in rows]


def _flags(row: Json) -> list[str]:
    flags = [name for name, count in (("NaN", row["nan"]), ("Inf", row["inf"])) if count]
    return [*flags, "all zero"] if row["zeros"] == 1 else flags


def site_rows(rank: Rank, sites: list[Site], steps: tuple[int, int] | None) -> list[Json]:
    """Every digest of the sites in recorded order, with their addresses; no statistic (NaN) is None."""
    from tensonde.digest.layout import COUNTS, DTYPES, STATS
    from tensonde.model.moment import Phase

    columns = ["step", "phase", "call", "site", "dtype", *COUNTS, *STATS]
    table = rank.digests(sites=[site.id for site in sites], steps=steps, columns=columns)
    address = {site.id: site.address for site in sites}
    phases = {int(phase): str(phase) for phase in Phase}
    rows = []
    for row in table.to_pylist():
        for name in STATS:
            if row[name] != row[name]:
                row[name] = None
        dtype = DTYPES[row["dtype"]] if row["dtype"] < len(DTYPES) else str(row["dtype"])
        phase = phases.get(row["phase"], str(row["phase"]))
        rows.append({**row, "rank": rank.rank, "site": address[row["site"]], "phase": phase, "dtype": dtype})
    return rows
