"""One diagnosed problem, as it stands in the report (see docs/report.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tensonde.model.site import SourceLine

Severity = Literal["error", "warning", "info"]


@dataclass(frozen=True, slots=True)
class Place:
    """One of the places, times or ranks at which the same was found."""

    rank: int
    site: str | None = None
    step: int | None = None
    phase: str | None = None
    source: SourceLine | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    rule: str
    severity: Severity
    title: str
    advice: str
    step: int | None = None
    phase: str | None = None
    rank: int = 0
    site: str | None = None
    op: str | None = None
    source: SourceLine | None = None
    evidence: Mapping[str, Any] = field(default_factory=dict)
    confidence: float = 1.0
    caused_by: int | None = None
    places: tuple[Place, ...] = ()
    """Where the same was found more than once: all of it, this finding's own place first."""
