"""Whether a training had been running away before it ended in NaN or Inf."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from statistics import median
from typing import Any

from tensonde.diagnose.rule import Case
from tensonde.model.site import Kind, Role, SourceLine

GROWTH = 1e3
"""Times that the loss must have grown over where it began."""
WEIGHTS = 10.0
"""Times that some weight's norm must have grown."""


@dataclass(frozen=True, slots=True)
class Divergence:
    """`step`: when the loss left the range of its beginning. `weights`: how many times the fastest weight has grown."""

    step: int
    weights: float
    site: str | None
    rate: float | None
    optimizer: Mapping[str, Any] | None
    source: SourceLine | None
    evidence: Mapping[str, Any]


def diverged(case: Case, end: int) -> Divergence | None:
    """Loss and weights before step `end`, where something was not finite: None when they had been calm."""
    losses = [(step, abs(value)) for step, value in case.series("loss") if step < end and isfinite(value)]
    if not losses:
        return None
    usual = max(median(value for _, value in losses[:3]), 1e-12) if len(losses) > 3 else max(losses[0][1], 1e-12)
    usual = min(usual, max(losses[0][1], 1e-12))
    tail = losses[-3:]
    grown = max(value for _, value in tail) / usual
    site, weights = _fastest(case, end)
    if grown < GROWTH and weights < 1e4:
        return None
    if weights < WEIGHTS:
        return None
    left = next((step for step, value in losses if value > 10 * usual), losses[-1][0])
    optimizer = _optimizer(case)
    rates = case.series("lr/0")
    rate = rates[0][1] if rates else None
    evidence: dict[str, Any] = {
        "loss.first": losses[0][1],
        "loss.last_finite": losses[-1][1],
        "loss.growth": grown,
        "weight": site,
        "weight.growth": weights,
        "lr": rate,
        "losses": {str(step): value for step, value in losses[:8]},
    }
    return Divergence(left, weights, f"{site}:value" if site else None, rate, optimizer, optimizer_line(case), evidence)


def _optimizer(case: Case) -> Mapping[str, Any] | None:
    known = case.facts.get("optimizers")
    first = known[0] if isinstance(known, list) and known else None
    return first if isinstance(first, Mapping) else None


def optimizer_line(case: Case) -> SourceLine | None:
    """Where the optimizer is built, as far as the facts tell."""
    given = (_optimizer(case) or {}).get("source")
    if not isinstance(given, Mapping):
        return None
    return SourceLine(given["file"], int(given["line"]), given.get("code", ""))


def _fastest(case: Case, end: int) -> tuple[str | None, float]:
    """The weight whose norm grew most from its first digest to its last finite one before `end`."""
    names = {
        site.id: site.name
        for site in case.sites.values()
        if site.kind is Kind.PARAMETER and site.role is Role.VALUE and len(site.shape) > 1
    }
    if not names:
        return None, 1.0
    table = case.rank.digests(
        sites=list(names), steps=(0, max(end, 0)), columns=["site", "step", "norm", "nan", "pos_inf", "neg_inf"]
    )
    first: dict[int, float] = {}
    most: dict[int, float] = {}
    for row in table.to_pylist():
        if row["nan"] or row["pos_inf"] or row["neg_inf"]:
            continue
        first.setdefault(row["site"], row["norm"])
        most[row["site"]] = row["norm"]
    ratios = {number: most[number] / norm for number, norm in first.items() if norm > 0}
    if not ratios:
        return None, 1.0
    number = max(ratios, key=lambda key: ratios[key])
    return names[number], ratios[number]
