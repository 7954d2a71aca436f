"""A run and the same run compiled: the ops inside compiled code are not traced, so what both runs have is compared.

That is the loss and the norms of all gradients, in the first steps that both have, before rounding has had time to grow.
"""

from __future__ import annotations

from tensonde.compare.losses import PERMILLE, relative
from tensonde.compare.pairing import Pairing
from tensonde.compare.side import Side
from tensonde.compare.verdict import Divergence

STEPS = 10
"""Steps that are looked at; later, rounding alone may part two runs."""
LATER = 5 * PERMILLE
"""For losses after the first step, to which the rounding of updates has been added."""
GRADIENT = 0.03
"""For norms of gradients: about four times what one rounding to bfloat16 changes."""
FAINT = 1e-3
"""Gradients smaller than this share of the largest are rounding."""


def one_is_compiled(a: Side, b: Side) -> bool:
    return bool(a.facts.get("compiled")) != bool(b.facts.get("compiled"))


def note(a: Side, b: Side) -> str:
    which = a if a.facts.get("compiled") else b
    return f"{which.label} is compiled: losses and norms of gradients are compared, in the first {STEPS} steps, not single ops."


def compared(a: Side, b: Side, pairing: Pairing) -> tuple[Divergence | None, int]:
    """Where they part, and how many numbers were compared."""
    count = 0
    names = pairing.weights or {name: name for name in a.gradients if name in b.gradients}
    for step in sorted(set(a.losses) & set(b.losses))[:STEPS]:
        count += 1
        off = relative(a.losses[step], b.losses[step])
        if off > (PERMILLE if step == 0 else LATER):
            return _loss(a, b, step, off), count
        norms = {
            mine: (a.gradients[mine][step], b.gradients[theirs][step])
            for mine, theirs in names.items()
            if step in a.gradients.get(mine, {}) and step in b.gradients.get(theirs, {})
        }
        count += len(norms)
        largest = max((max(pair) for pair in norms.values()), default=0.0)
        for mine, (one, other) in norms.items():
            if max(one, other) > FAINT * largest and relative(one, other) > GRADIENT:
                return _gradient(mine, names[mine], step, one, other), count
    return None, count


def _loss(a: Side, b: Side, step: int, off: float) -> Divergence:
    why = f"The loss of step {step} is {a.losses[step]:.6g} in A and {b.losses[step]:.6g} in B"
    why += "." if step == 0 else ", while losses and gradients agree before: look at the optimizer and at buffers."
    evidence = {"a": a.losses[step], "b": b.losses[step], "relative": off}
    return Divergence(
        "forward" if step == 0 else "optimizer", "loss:value", "loss:value", step, "forward", why, evidence
    )


def _gradient(mine: str, theirs: str, step: int, one: float, other: float) -> Divergence:
    why = f"The losses of step {step} agree; the norm of the gradient of {mine} is {one:.6g} in A and {other:.6g} in B."
    evidence = {"norm_a": one, "norm_b": other, "relative": relative(one, other)}
    return Divergence("backward", f"{mine}:grad", f"{theirs}:grad", step, "backward", why, evidence)
