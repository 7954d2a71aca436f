"""The curves of both runs, step by step: losses within 1 permille, learning rates, and when gradients suddenly part."""

from __future__ import annotations

import math
from typing import Any

from tensonde.compare.pairing import Pairing
from tensonde.compare.side import Side

PERMILLE = 1e-3
_JUMP = 30.0
_CALM = 1e-6
_LOUD = 1e-4


def compare_losses(a: Side, b: Side) -> dict[str, Any]:
    steps = sorted(set(a.losses) & set(b.losses))
    off, most = None, 0.0
    for step in steps:
        apart = relative(a.losses[step], b.losses[step])
        most = max(most, apart)
        if off is None and apart > PERMILLE:
            off = step
    return {
        "steps": len(steps),
        "first_off_step": off,
        "max_rel": most,
        "within_1_permille": off is None,
        "first": [[a.losses[step], b.losses[step]] for step in steps[:5]],
    }


def relative(a: float, b: float) -> float:
    """The difference as a share of the larger."""
    if math.isnan(a) or math.isnan(b):
        return 0.0 if math.isnan(a) and math.isnan(b) else math.inf
    if a == b:
        return 0.0
    return math.inf if math.isinf(a) or math.isinf(b) else abs(a - b) / max(abs(a), abs(b))


def rate_change(a: Side, b: Side) -> tuple[int, str, float, float] | None:
    """The first step that is made with another learning rate: step, group, both rates."""
    for step in sorted(set(a.rates) & set(b.rates)):
        for group, rate in a.rates[step].items():
            other = b.rates[step].get(group)
            if other is not None and relative(rate, other) > 1e-6:
                return step, group, rate, other
    return None


def jump(a: Side, b: Side, pairing: Pairing) -> int | None:
    """The first step in which losses or gradients part at once; rounding grows from step to step instead."""
    totals = [_totals(a, set(pairing.weights)), _totals(b, set(pairing.weights.values()))]
    before: list[float] = []
    for step in sorted(set(a.losses) & set(b.losses)):
        apart = relative(a.losses[step], b.losses[step])
        if step in totals[0] and step in totals[1]:
            apart = max(apart, relative(totals[0][step], totals[1][step]))
        if apart > _LOUD and apart > _JUMP * max([_CALM, *before[-5:]]):
            return step
        before.append(apart)
    return None


def _totals(side: Side, names: set[str]) -> dict[int, float]:
    found: dict[int, float] = {}
    for name, norms in side.gradients.items():
        if name in names:
            for step, norm in norms.items():
                found[step] = found.get(step, 0.0) + norm * norm
    return {step: math.sqrt(total) for step, total in found.items()}
