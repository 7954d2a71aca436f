"""Whether a training had been running away before it ended in NaN or Inf."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite, prod, sqrt
from statistics import median
from typing import Any

from tensonde.diagnose.case import Case
from tensonde.model.facts import OptimizerFact
from tensonde.model.site import Kind, Role, SourceLine

NORMALISING = ("Adam", "AdamW", "NAdam", "RAdam", "Adamax", "Lion", "RMSprop", "Adagrad")
"""Optimizers whose step is about the learning rate, whatever the gradient."""
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
    optimizer: OptimizerFact | None
    source: SourceLine | None
    evidence: Mapping[str, Any]
    raised: Raise | None = None


REFERENCE = 30
"""Steps in a row, those with the lowest median so far, whose losses are the range of a healthy loss."""
STAYS = 3
"""Losses in a row beyond that range."""


@dataclass(frozen=True, slots=True)
class Left:
    """At the `step`-th loss, the losses left their range: they exceed `limit`. `before` is the median of the losses within it."""

    step: int
    limit: float
    before: float


def left_range(losses: Sequence[float]) -> Left | None:
    """Where the loss shows that a training diverges: the first of three losses in a row that exceed the largest of the best thirty
    in a row before them by more than those thirty differ among themselves."""
    best: Left | None = None
    for at in range(REFERENCE, len(losses)):
        window = losses[at - REFERENCE : at]
        if all(map(isfinite, window)):
            middle = median(window)
            if best is None or middle < best.before:
                best = Left(at, 2 * max(window) - min(window), middle)
        here = losses[at : at + STAYS]
        if best is not None and len(here) == STAYS and not any(value <= best.limit for value in here):
            return Left(at, best.limit, best.before)
    return None


RAISED = 5.0
"""Times that the learning rate must have risen over what the training was calm with."""


@dataclass(frozen=True, slots=True)
class Raise:
    """The learning rate went from `before` to `after` at `step`; `source` is the line that raised it, where that is known."""

    step: int
    before: float
    after: float
    source: SourceLine | None


def raised(case: Case, step: int, within: int = 50) -> Raise | None:
    """Whether the learning rate was raised in the steps up to `step`, far above all that the training had been calm with. A
    warm-up from next to nothing is none: the rate that it comes to is what was asked for."""
    rates = [(k, rate) for k, rate in case.series("lr/0") if k <= step]
    for (_, before), (k, after) in pairwise(rates):
        most = max(rate for earlier, rate in rates if earlier < k)
        if k > step - within and after >= RAISED * before and after >= RAISED * most > 0:
            return Raise(k, before, after, _raised_by(case, after))
    return None


def _raised_by(case: Case, rate: float) -> SourceLine | None:
    """The line that sets the rate: the only one, or the one with this very number; else the schedule."""
    told = case.facts.rates_set
    exact = [line for line in told if line.value == rate]
    lines = exact if len(exact) == 1 else told if len(told) == 1 else []
    if lines:
        return lines[0].source
    busy = [scheduler for scheduler in case.facts.schedulers if scheduler.steps]
    return busy[0].made if len(busy) == 1 and not told else None


def grown_weight(case: Case, first: int, last: int) -> float:
    """How many times the fastest weight has grown from step `first` to step `last`."""
    return _fastest(case, last, first)[1]


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
    rates = dict(case.series("lr/0"))
    change = raised(case, left)
    rate = change.after if change else rates.get(left, next(iter(rates.values()), None))
    evidence: dict[str, Any] = {
        "loss.first": losses[0][1],
        "loss.last_finite": losses[-1][1],
        "loss.growth": grown,
        "weight": site,
        "weight.growth": weights,
        "lr": rate,
        "losses": {str(step): value for step, value in losses[:8]},
    }
    if change is not None:
        evidence |= {"lr.before": change.before, "lr.raised_at_step": change.step}
    source = (change.source if change else None) or optimizer_line(case)
    return Divergence(left, weights, f"{site}:value" if site else None, rate, optimizer, source, evidence, change)


def replaced(case: Case, end: int) -> tuple[str, float] | None:
    """The weight that is nothing but the first update, where one of the next steps is lost: its values are about the learning rate, as one step of Adam makes of
    a weight that was far smaller. And how many times larger it is than such weights begin with."""
    optimizer, rate = _optimizer(case), dict(case.series("lr/0")).get(0)
    if optimizer is None or optimizer.type not in NORMALISING or not rate or end > 3 or len(case.stepping) != 1:
        return None
    found = {}
    for name, fact in case.facts.parameters.items():
        if len(fact.shape) >= 2 and fact.optimizers and fact.requires_grad and fact.library and not fact.loaded:
            rows = case.digests(f"{name}:value", ("step", "norm"))
            size = rows[0]["norm"] / sqrt(prod(fact.shape)) if rows and rows[0]["step"] == 0 else 0.0
            found[name] = size * sqrt(prod(fact.shape[1:])) if abs(size - rate) < 0.2 * rate else 0.0
    if 2 * sum(ratio > WEIGHTS for ratio in found.values()) <= len(found):
        return None
    name = max(found, key=lambda key: found[key])
    return name, found[name]


def _optimizer(case: Case) -> OptimizerFact | None:
    return next(iter(case.facts.optimizers), None)


def optimizer_line(case: Case) -> SourceLine | None:
    """Where the optimizer is built, as far as the facts tell."""
    optimizer = _optimizer(case)
    return optimizer.made if optimizer is not None else None


def _fastest(case: Case, end: int, begin: int = 0) -> tuple[str | None, float]:
    """The weight whose norm grew most from its first digest to its last finite one before `end`."""
    names = {
        site.id: site.name
        for site in case.sites.values()
        if site.kind is Kind.PARAMETER and site.role is Role.VALUE and len(site.shape) > 1
    }
    if not names:
        return None, 1.0
    table = case.rank.digests(
        sites=list(names),
        steps=(max(begin - 2, 0), max(end, 0)),
        columns=["site", "step", "norm", "nan", "pos_inf", "neg_inf"],
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
