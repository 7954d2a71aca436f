"""Two runs side by side, as `tensonde compare --json` tells it."""

from __future__ import annotations

from typing import Any, Literal

from tensonde.server.models.common import Model, Number, Source


class Divergence(Model):
    """The first place where inputs agree and outputs do not; `site` of A, `other_site` of B."""

    site: str
    other_site: str
    step: int
    phase: str
    role: str
    why: str
    evidence: dict[str, Any] = {}
    source: Source | None = None
    other_source: Source | None = None


class DifferingSetting(Model):
    what: str
    a: Any = None
    b: Any = None


class Unmatched(Model):
    a: list[str]
    b: list[str]


class ComparedGraphs(Model):
    """The `source` of each side's graph that shows the compared step."""

    a: str
    b: str


class Differences(Model):
    """By column, in the order of execution of A. `a` and `b` are addresses, None where the other run has no such tensor."""

    a: list[str | None]
    b: list[str | None]
    phase: list[str]
    status: list[Literal["equal", "rounding", "different", "origin", "unmatched"]]
    rel_l2: list[Number | None]
    max_abs: list[Number | None]
    cosine: list[Number | None]


class Comparison(Model):
    """As `tensonde compare --json`, and how the difference spreads in `step`."""

    verdict: Literal["equivalent", "divergent"]
    judgement: Literal["data", "init", "forward", "backward", "optimizer", "none"]
    a: str
    b: str
    first: Divergence | None = None
    settings: list[DifferingSetting]
    losses: dict[str, Any]
    unmatched: Unmatched
    coverage: dict[str, Any]
    renamed: dict[str, str]
    notes: list[str]
    step: int
    graphs: ComparedGraphs
    differences: Differences
