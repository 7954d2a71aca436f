"""How far all steps of a training together can have moved its weights."""

from __future__ import annotations

from tensonde.diagnose.analysis.divergence import NORMALISING
from tensonde.diagnose.case import Case


def largest_moves(case: Case) -> list[float]:
    """Of each weight, as a part of its size, bounded from above: a step of Adam moves a weight by at most about lr, one of SGD by lr times its gradient. Empty where
    several optimizers step."""
    rates = [value for _, value in case.series("lr/0")]
    if len(case.stepping) != 1 or not rates:
        return []
    optimizer = case.stepping[0]
    moves = []
    for name, fact in case.facts.parameters.items():
        if len(fact.shape) < 2 or not fact.optimizers or not fact.requires_grad:
            continue
        values = case.digests(f"{name}:value", ("norm", "absmean"))
        gradients = [row["norm"] for row in case.digests(f"{name}:grad", ("norm",))]
        if not values or not gradients or values[0]["norm"] <= 0 or not any(gradients):
            continue
        if optimizer.type in NORMALISING:
            moves.append(sum(rates) / values[0]["absmean"])
        else:
            momentum = float(optimizer.groups[0].get("momentum") or 0)
            moves.append(sum(rates) * max(gradients) / values[0]["norm"] / max(1 - momentum, 1e-3))
    return moves
