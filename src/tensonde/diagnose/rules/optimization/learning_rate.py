"""A learning rate that is out of scale with the weights."""

from __future__ import annotations

from itertools import pairwise
from math import isfinite, sqrt
from statistics import median, stdev

from tensonde.diagnose.analysis.moves import largest_moves
from tensonde.diagnose.case import Case
from tensonde.diagnose.rule import rule
from tensonde.diagnose.told import ended_by_itself
from tensonde.model.finding import Finding

MOST = 5e-3
"""Of their size: how far weights can have come that have hardly moved."""
FEW = 0.05
"""Of the loss: what is not taken for chance, however noisy it is, where weights have moved a little."""
STILL = 1e-4
"""Of their size: weights that can have come no further stand where they began, and the loss has moved by chance."""


@rule("learning-rate-too-small", severity="warning", phase="optimizer", unless=("gradients-still-scaled",))
def too_small(case: Case) -> list[Finding]:
    """All steps together could not have moved any weight by a two-hundredth of its size, and the loss has not moved
    by a hundredth either, or by no more than chance.
    """
    stepping = case.stepping
    losses = [value for _, value in case.series("loss") if isfinite(value)]
    rates = [value for _, value in case.series("lr/0")]
    if len(stepping) != 1 or len(losses) < 50 or not rates or max(rates) <= 0 or not ended_by_itself(case):
        return []
    part = max(5, len(losses) // 10)
    before, after = median(losses[:part]), median(losses[-part:])
    chance = 2 * stdev(b - a for a, b in pairwise(losses)) / sqrt(part)
    moves = largest_moves(case)
    if not moves or max(moves) > MOST or abs(before) < 1e-6:
        return []
    if max(moves) > STILL:
        chance = min(chance, FEW * abs(before))
    if abs(before - after) > max(0.01 * abs(before), chance):
        return []
    return [
        case.finding(
            (
                f"A learning rate of {max(rates):g} moves the weights by {max(moves):.0e} of their size in "
                f"{len(rates)} steps"
            ),
            "Raise it by a factor of 100 or more, and check the scale of the loss.",
            site="lr",
            source=stepping[0].made,
            evidence={
                "lr": max(rates),
                "largest_possible_move": max(moves),
                "loss_before": before,
                "loss_after": after,
            },
            confidence=0.85,
        )
    ]


@rule("learning-rate-too-large", severity="error", phase="optimizer")
def too_large(case: Case) -> list[Finding]:
    """The loss jumps at the very first steps and never returns to its initial value, and weights grow manifold in
    those steps: the first updates are larger than the weights. If it ends in NaN or Inf, `divergence` reports it. A
    loss that may be negative (a similarity, a likelihood) has no scale to measure a jump against: the loss must not
    be below 0.
    """
    stepping = case.stepping
    series = case.series("loss")
    losses = [value for _, value in series]
    if len(stepping) != 1 or len(losses) < 20 or not all(map(isfinite, losses)) or losses[0] <= 0 or min(losses) < 0:
        return []
    end = median(losses[-max(5, len(losses) // 10) :])
    if max(losses[1:10]) < 5 * losses[0] or end < 0.95 * losses[0]:
        return []
    grown = {}
    for name, fact in case.facts.parameters.items():
        if len(fact.shape) >= 2 and fact.optimizers:
            norms = [row["norm"] for row in case.digests(f"{name}:value", ("norm",))]
            if len(norms) >= 10 and norms[0] > 0:
                grown[name] = max(norms[:20]) / norms[0]
    usual = stepping[0].groups[0].get("lr", 0)
    if not grown or (max(grown.values()) < 2 and usual < 0.05):
        return []
    name = max(grown, key=lambda key: grown[key])
    rates = [value for _, value in case.series("lr/0")]
    return [
        case.finding(
            (
                f"The loss jumps from {losses[0]:.3g} to {max(losses[1:10]):.3g} in the first steps and stays high: "
                f"a learning rate of {rates[0] if rates else 0:g} is too large"
            ),
            "Lower it by a factor of 10 or more, or warm it up; clipping the gradient's norm helps against single jumps.",
            step=1,
            site=f"{name}:value",
            source=stepping[0].made,
            evidence={
                "first_loss": losses[0],
                "peak": max(losses[1:10]),
                "last": end,
                "weights_grown": grown[name],
                "lr": rates[0] if rates else None,
            },
            confidence=0.85,
        )
    ]
