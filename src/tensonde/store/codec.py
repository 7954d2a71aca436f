"""Sites, hits and findings as JSON objects, and back.

Reading is lenient about unknown keys and strict about what it needs: it raises KeyError, TypeError or
ValueError.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from tensonde.model.finding import Finding, Place
from tensonde.model.moment import Moment, Phase
from tensonde.model.site import Kind, Part, Role, Site, SourceLine
from tensonde.model.watchpoint import Hit
from tensonde.program.lines import from_json, to_json

Json = dict[str, Any]


def _source_in(entry: Any) -> SourceLine | None:
    if entry is None:
        return None
    _int(entry["line"], 32)
    return from_json(entry)


def _numbers(entry: Any) -> dict[str, float]:
    return {str(key): float(value) for key, value in (entry or {}).items()}


def _int(value: Any, bits: int = 64) -> int:
    """A whole number that fits into the columns that it is shown in. Raises ValueError."""
    number = int(value)
    if not -(1 << (bits - 1)) <= number < 1 << (bits - 1):
        raise ValueError(f"a number of {number.bit_length()} bits, where {bits} are expected")
    return number


def _optional_int(value: Any, bits: int = 64) -> int | None:
    return None if value is None else _int(value, bits)


def site_out(site: Site) -> Json:
    return {
        "id": int(site.id),
        "name": site.name,
        "role": str(site.role),
        "kind": str(site.kind),
        "index": site.index,
        "type": site.type,
        "trainable": site.trainable,
        "shape": list(site.shape),
        "dtype": site.dtype,
        "source": to_json(site.source),
        **({"part": asdict(site.part)} if site.part is not None else {}),
        **({"device": site.device} if site.device else {}),
    }


def site_in(entry: Mapping[str, Any]) -> Site:
    trainable = entry.get("trainable")
    return Site(
        id=_int(entry["id"], 32),
        name=str(entry["name"]),
        role=Role(entry["role"]),
        kind=Kind(entry["kind"]),
        index=_optional_int(entry.get("index"), 32),
        type=str(entry.get("type", "")),
        trainable=None if trainable is None else bool(trainable),
        shape=tuple(_int(n) for n in entry.get("shape") or ()),
        dtype=str(entry.get("dtype", "")),
        source=_source_in(entry.get("source")),
        part=_part_in(entry.get("part")),
        device=str(entry.get("device") or ""),
    )


def _part_in(entry: Any) -> Part | None:
    if not isinstance(entry, Mapping):
        return None
    placements = tuple(str(one)[:1] for one in entry.get("placements") or ())
    mesh, at = (tuple(_int(n, 32) for n in entry.get(name) or ()) for name in ("mesh", "at"))
    return Part(placements, mesh, at) if len(placements) == len(mesh) == len(at) else None


def hit_out(hit: Hit) -> Json:
    return {
        "watchpoint": hit.watchpoint,
        "site": hit.site,
        "step": hit.moment.step,
        "phase": str(hit.moment.phase),
        "call": hit.moment.call,
        "condition": hit.condition,
        "preset": dict(hit.preset),
        "actual": dict(hit.actual),
        "rank": hit.rank,
    }


def moment_in(entry: Mapping[str, Any]) -> Moment:
    return Moment(_int(entry["step"]), Phase[str(entry["phase"]).upper()], _int(entry.get("call", 0), 32))


def hit_in(entry: Mapping[str, Any]) -> Hit:
    return Hit(
        watchpoint=_int(entry["watchpoint"], 32),
        site=str(entry["site"]),
        moment=moment_in(entry),
        condition=str(entry["condition"]),
        preset=_numbers(entry.get("preset")),
        actual=_numbers(entry.get("actual")),
        rank=_int(entry.get("rank", 0), 32),
    )


def finding_out(finding: Finding) -> Json:
    """As in the report: see docs/report.md."""
    entry: Json = {
        "rule": finding.rule,
        "severity": finding.severity,
        "title": finding.title,
        "step": finding.step,
        "phase": finding.phase,
        "rank": finding.rank,
        "site": finding.site,
        "op": finding.op,
        "source": to_json(finding.source),
        "evidence": dict(finding.evidence),
        "advice": finding.advice,
        "confidence": finding.confidence,
    }
    if finding.caused_by is not None:
        entry["caused_by"] = finding.caused_by
    if finding.places:
        entry["places"] = [{**asdict(place), "source": to_json(place.source)} for place in finding.places]
    return entry


def finding_in(entry: Mapping[str, Any]) -> Finding:
    severity = entry["severity"]
    if severity not in ("error", "warning", "info"):
        raise ValueError(f"unknown severity {severity!r}")
    phase, site, op = entry.get("phase"), entry.get("site"), entry.get("op")
    return Finding(
        rule=str(entry["rule"]),
        severity=severity,
        title=str(entry["title"]),
        advice=str(entry.get("advice", "")),
        step=_optional_int(entry.get("step")),
        phase=None if phase is None else str(phase),
        rank=_int(entry.get("rank", 0), 32),
        site=None if site is None else str(site),
        op=None if op is None else str(op),
        source=_source_in(entry.get("source")),
        evidence=dict(entry.get("evidence") or {}),
        confidence=float(entry.get("confidence", 1.0)),
        caused_by=_optional_int(entry.get("caused_by")),
        places=tuple(_place_in(place) for place in entry.get("places") or ()),
    )


def _place_in(entry: Mapping[str, Any]) -> Place:
    phase, site = entry.get("phase"), entry.get("site")
    return Place(
        rank=int(entry.get("rank", 0)),
        site=None if site is None else str(site),
        step=_optional_int(entry.get("step")),
        phase=None if phase is None else str(phase),
        source=_source_in(entry.get("source")),
    )
