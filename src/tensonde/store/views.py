"""The small tables behind the SQL views: sites, hits, findings and events of one rank as rows of fixed
columns."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tensonde.program.lines import to_json
from tensonde.store.collectives import read_collectives
from tensonde.store.files import dump_json
from tensonde.store.reader import Rank

_TEXT, _INT, _LONG, _REAL = pa.string(), pa.int32(), pa.int64(), pa.float64()
_NUMBERS = pa.map_(_TEXT, _REAL)
_WHERE = {"run": _TEXT, "process": _TEXT, "rank": _INT}
_LINE = {"file": _TEXT, "line": _INT, "code": _TEXT}

SCHEMAS = {
    "sites": pa.schema(
        {
            **_WHERE,
            "id": _INT,
            "site": _TEXT,
            "name": _TEXT,
            "role": _TEXT,
            "index": _INT,
            "kind": _TEXT,
            "type": _TEXT,
            "trainable": pa.bool_(),
            "shape": pa.list_(_LONG),
            "dtype": _TEXT,
            "device": _TEXT,
            **_LINE,
        }
    ),
    "hits": pa.schema(
        {
            **_WHERE,
            "ord": _LONG,
            "watchpoint": _INT,
            "step": _LONG,
            "phase": _TEXT,
            "site": _TEXT,
            "call": _INT,
            "condition": _TEXT,
            "preset": _NUMBERS,
            "actual": _NUMBERS,
        }
    ),
    "findings": pa.schema(
        {
            **_WHERE,
            "ord": _LONG,
            "rule": _TEXT,
            "severity": _TEXT,
            "title": _TEXT,
            "step": _LONG,
            "phase": _TEXT,
            "site": _TEXT,
            "op": _TEXT,
            **_LINE,
            "evidence": _TEXT,
            "advice": _TEXT,
            "confidence": _REAL,
            "caused_by": _LONG,
        }
    ),
    "events": pa.schema({**_WHERE, "ord": _LONG, "kind": _TEXT, "time": _TEXT, "fields": _TEXT}),
    "collectives": pa.schema(
        {
            **_WHERE,
            "ord": _LONG,
            "step": _LONG,
            "group": _TEXT,
            "ranks": _LONG,
            "number": _LONG,
            "op": _TEXT,
            "reduce": _TEXT,
            "tensor": _TEXT,
            "began": _REAL,
            "seconds": _REAL,
            **_LINE,
        }
    ),
}
"""`evidence` and `fields` are JSON text. `rank` of a hit or a finding is the one that it names itself."""


def small_tables(runs: dict[str, list[Rank]]) -> dict[str, pa.Table]:
    """Every view but digests and scalars, over all ranks of all runs."""
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in SCHEMAS}
    for run, ranks in runs.items():
        for rank in ranks:
            here = {"run": run, "process": rank.name, "rank": rank.rank}
            rows["sites"] += [{**here, **entry} for entry in _site_rows(rank)]
            rows["hits"] += [{**here, **entry} for entry in _hit_rows(rank)]
            rows["findings"] += [{**here, **entry} for entry in _finding_rows(rank)]
            rows["events"] += [{**here, **entry} for entry in _event_rows(rank)]
            rows["collectives"] += [{**here, **entry} for entry in _collective_rows(rank)]
    return {
        name: pa.Table.from_pylist([{key: _text(value) for key, value in row.items()} for row in rows[name]], schema)
        for name, schema in SCHEMAS.items()
    }


def _text(value: Any) -> Any:
    """A lone surrogate, which stands for a byte of an undecodable file name, is spelt out: tables hold UTF-8."""
    return value.encode(errors="backslashreplace").decode() if isinstance(value, str) else value


def _site_rows(rank: Rank) -> list[dict[str, Any]]:
    return [
        {
            "id": site.id,
            "site": site.address,
            "name": site.name,
            "role": str(site.role),
            "index": site.index,
            "kind": str(site.kind),
            "type": site.type,
            "trainable": site.trainable,
            "shape": list(site.shape),
            "dtype": site.dtype,
            "device": site.device or "cpu",
            **(to_json(site.source) or {}),
        }
        for site in rank.sites.values()
    ]


def _collective_rows(rank: Rank) -> list[dict[str, Any]]:
    return [
        {
            "ord": call.index,
            "step": call.step,
            "group": call.kind.group,
            "ranks": call.kind.size,
            "number": call.number,
            "op": call.kind.op,
            "reduce": call.kind.reduce,
            "tensor": call.kind.what,
            "began": call.began,
            "seconds": call.seconds,
            **(to_json(call.kind.source) or {}),
        }
        for call in read_collectives(rank.folder)
    ]


def _hit_rows(rank: Rank) -> list[dict[str, Any]]:
    return [
        {
            "ord": number,
            "watchpoint": hit.watchpoint,
            "step": hit.moment.step,
            "phase": str(hit.moment.phase),
            "rank": hit.rank,
            "site": hit.site,
            "call": hit.moment.call,
            "condition": hit.condition,
            "preset": list(hit.preset.items()),
            "actual": list(hit.actual.items()),
        }
        for number, hit in enumerate(rank.hits)
    ]


def _finding_rows(rank: Rank) -> list[dict[str, Any]]:
    return [
        {
            "ord": number,
            "rule": finding.rule,
            "severity": finding.severity,
            "title": finding.title,
            "step": finding.step,
            "phase": finding.phase,
            "rank": finding.rank,
            "site": finding.site,
            "op": finding.op,
            "evidence": dump_json(finding.evidence).decode(),
            "advice": finding.advice,
            "confidence": finding.confidence,
            "caused_by": finding.caused_by,
            **(to_json(finding.source) or {}),
        }
        for number, finding in enumerate(rank.findings)
    ]


def _event_rows(rank: Rank) -> list[dict[str, Any]]:
    rows = []
    for number, event in enumerate(rank.events):
        rest = {key: value for key, value in event.items() if key not in ("kind", "time")}
        kind, time = str(event.get("kind", "")), str(event.get("time", ""))
        rows.append({"ord": number, "kind": kind, "time": time, "fields": dump_json(rest).decode()})
    return rows
