"""Which parameters are trained: that got a gradient, that changed, and why not, from what a short run recorded."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tensonde.model.facts import LeftOut, ParameterFact, facts_in
from tensonde.model.site import Kind, Role, Site
from tensonde.store.reader import Rank

_COMPARED = ("absmean", "norm", "absmax", "mean", "min", "max")


@dataclass(frozen=True, slots=True)
class ParameterState:
    """`trainable`: it requires a gradient, or would be trained if an optimizer knew it. `why` is empty where all is
    well.

    `excused`: it need not change. A bias whose gradient is 0 is one: a loss of differences does not depend on it.
    """

    name: str
    trainable: bool
    gradient: bool
    changed: bool
    why: str = ""
    excused: bool = False


def parameter_states(rank: Rank) -> list[ParameterState]:
    values = {
        site.name: site for site in rank.sites.values() if site.kind is Kind.PARAMETER and site.role is Role.VALUE
    }
    grads = {site.name: site for site in rank.sites.values() if site.kind is Kind.PARAMETER and site.role is Role.GRAD}
    rows = _by_site(rank, [*values.values(), *grads.values()])
    facts = facts_in(rank.facts)[0].parameters
    still = _rates_are_zero(rank)
    return [_state(name, site, grads.get(name), rows, facts.get(name), still) for name, site in values.items()]


def _rates_are_zero(rank: Rank) -> bool:
    rates = [row["value"] for row in rank.scalars().to_pylist() if str(row["name"]).startswith("lr/")]
    return bool(rates) and not any(rates)


def _by_site(rank: Rank, sites: list[Site]) -> dict[int, list[dict[str, Any]]]:
    found: dict[int, list[dict[str, Any]]] = {}
    columns = ["site", "step", "count", *_COMPARED]
    for row in rank.digests(sites=[site.id for site in sites], columns=columns).to_pylist():
        found.setdefault(int(row["site"]), []).append(row)
    return found


def _state(
    name: str,
    value: Site,
    grad: Site | None,
    rows: dict[int, list[dict[str, Any]]],
    fact: ParameterFact | None,
    still: bool,
) -> ParameterState:
    """`still`: all learning rates are 0."""
    given = rows.get(grad.id, []) if grad is not None else []
    seen = rows.get(value.id, [])
    left_out = (
        fact.left_out if fact else None
    ) or LeftOut()  # by every optimizer: its gradient is looked at, not digested
    gradient = bool(given) or bool(left_out.gradients)
    zero = gradient and all(row["absmax"] == 0 for row in given) and not left_out.nonzero
    changed = any(_differs(a, b) for a, b in pairwise(seen))
    trainable = fact.requires_grad if fact else bool(value.trainable)
    in_optimizer = bool(fact.optimizers) if fact else bool(value.trainable)
    why = ""
    if not trainable:
        why = ""
    elif not in_optimizer:
        why = "it is in no optimizer"
    elif not gradient:
        why = "nothing that the loss depends on uses it (an unused layer, a detached output)"
    elif zero:
        why = "its gradient is 0 everywhere"
    elif not changed and len(seen) < 2:
        changed = True  # one look only: nothing to compare with, and it has a gradient
    elif not changed and still:
        why = "the learning rate is 0"
    elif not changed:
        why = "the step is too small to change it (learning rate, precision), or was skipped"
    return ParameterState(name, trainable, gradient, changed, why, excused=zero and len(value.shape) < 2)


def _differs(a: dict[str, Any], b: dict[str, Any]) -> bool:
    """Any statistic of the values: a change that leaves all of them alone to the last digit is none."""
    return any(a[column] != b[column] for column in _COMPARED)
