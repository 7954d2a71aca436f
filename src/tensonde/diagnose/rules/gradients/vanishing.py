"""Gradients that die away with depth."""

from __future__ import annotations

from itertools import pairwise
from statistics import median

from tensonde.diagnose.analysis.depth import layers_and_squashing, stuck
from tensonde.diagnose.case import Case
from tensonde.diagnose.rule import rule
from tensonde.model.finding import Finding

GONE = 1e-5
"""Of the largest gradient, relative to the weights: a layer that gets so little does not learn with the others."""
STILL = 1e-3
"""Weights whose norm changes by no more over the whole training do not move."""
CHAIN = 4
"""Squashing activations in a row, at least."""


@rule("gradient-vanishes", severity="error", phase="backward")
def vanishes(case: Case) -> list[Finding]:
    """Layer by layer towards the input, gradients shrink by a factor at every sigmoid or tanh (a sigmoid passes on at
    most a quarter), until those of the first layers are a hundred thousand times smaller than the largest, in step
    after step. The weights of the first layers do not move, and the loss does not fall.

    All of this must hold: layers that start at zero, frozen layers and warm-ups have a small gradient without that
    pattern, and if the loss falls, depth does no harm.
    """
    trace = case.first
    if trace is None or trace.loss is None or not stuck([value for _, value in case.series("loss")]):
        return []
    layers, squashing = layers_and_squashing(trace)
    sizes = [(op, name, size) for op, name in layers if (size := _relative(case, name)) is not None]
    if len(sizes) < CHAIN + 1:
        return []
    largest = max(size for *_, size in sizes)
    early = []
    for op, name, size in sizes:
        if size >= GONE * largest:
            break
        early.append((op, name, size))
    between = [op for op in squashing if early and op.index > early[0][0].index]
    rising = sum(a[2] < b[2] for a, b in pairwise(sizes))
    if len(early) < 2 or len(between) < CHAIN or rising < 0.8 * (len(sizes) - 1):
        return []
    if not all(_still(case, name) for _, name, _ in early[:2]):
        return []
    act = between[0]
    fact = case.module(act.module)
    first, last = early[0], max(sizes, key=lambda entry: entry[2])
    return [
        case.finding(
            (
                f"Gradients vanish on the way through {len(between)} times {act.op.rstrip('_')}: that of {first[1]} is "
                f"{first[2] / last[2]:.0e} of that of {last[1]}, and the loss does not fall"
            ),
            "Use ReLU or GELU between the layers, a normalization before each activation, or residual connections.",
            site=f"{act.module}:out" if fact.library else f"{act.site}:out",
            op=act.op,
            source=(fact.made if fact.library else None) or act.source,
            evidence={
                "gradient_by_weight": {name: float(f"{size:.3g}") for _, name, size in sizes[:16]},
                "activations_between": len(between),
                "weights_that_do_not_move": [name for _, name, _ in early if _still(case, name)][:8],
            },
            confidence=0.9,
        )
    ]


def _relative(case: Case, name: str) -> float | None:
    """The gradient's norm as a share of the weight's, as a median over steps; None where it is not known, or 0."""
    gradients: list[float] = [row["norm"] for row in case.digests(f"{name}:grad", ("step", "norm"))]
    values: list[float] = [row["norm"] for row in case.digests(f"{name}:value", ("step", "norm"))]
    if len(gradients) < 10 or not values:
        return None
    gradient, value = median(gradients), median(values)
    return gradient / value if gradient > 0 and value > 0 else None


def _still(case: Case, name: str) -> bool:
    norms = [row["norm"] for row in case.digests(f"{name}:value", ("step", "norm"))]
    return len(norms) >= 10 and max(norms) - min(norms) <= STILL * max(norms)
