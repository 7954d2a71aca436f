"""Whether a weight that one pass applies again and again was thrown out of place by its own gradient.

The gradient of a recurrent weight is a product over all its uses, and grows or vanishes with their number. With an optimizer whose step
is as long as the gradient (SGD), one such gradient is enough: the next pass multiplies the damage up, and overflows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

from tensonde.diagnose.case import Case
from tensonde.model.facts import ParameterFact
from tensonde.model.site import SourceLine
from tensonde.model.trace import OpRecord, Trace

USES = 8
"""So often at least is a weight applied in one pass that is recurrent by hand."""
GRADIENT = 10.0
"""Times that the gradient's norm must exceed the weight's."""
CHANGE = 0.1
"""The part of the weight that one step must have changed; a thousandth is usual."""


@dataclass(frozen=True, slots=True)
class Explosion:
    """`step` is the one whose gradient it was: the one before the overflow."""

    weight: str
    step: int
    gradient: float
    times: float
    change: float
    source: SourceLine | None
    evidence: Mapping[str, Any]


def exploded(case: Case, trace: Trace, layer: OpRecord | None) -> Explosion | None:
    """The recurrent weight with the largest gradient in the step before that of this trace. `layer` is the one op that made
    huge values out of ordinary ones: with weights of its own, it is a recurrent layer.
    None when gradients are clipped, or the optimizer does not go by their size."""
    losses = dict(case.series("loss"))
    if case.facts.clipping.calls or not isfinite(losses.get(trace.step - 1, float("nan"))):
        return None
    found = [one for name in _recurrent(trace, layer) if (one := _gradient(case, name, trace.step - 1)) is not None]
    return max(found, key=lambda one: one.times, default=None)


def _recurrent(trace: Trace, layer: OpRecord | None) -> list[str]:
    uses = Counter(name for op in trace.ops for name in {fact.name for fact in op.inputs if fact.name})
    often = [name for name, count in uses.items() if count >= USES]
    return list(dict.fromkeys([*(fact.name for fact in layer.inputs if fact.name), *often] if layer else often))


def _gradient(case: Case, name: str, step: int) -> Explosion | None:
    fact = case.facts.parameters.get(name) or ParameterFact()
    optimizers = [case.facts.optimizers[k] for k in fact.optimizers]
    if len(fact.shape) < 2 or len(optimizers) != 1 or optimizers[0].type != "SGD":
        return None
    gradients = {row["step"]: row["norm"] for row in case.digests(f"{name}:grad", ("step", "norm"))}
    values = {row["step"]: row["norm"] for row in case.digests(f"{name}:value", ("step", "norm"))}
    begun = {weight.name: weight.before.get("norm", 0.0) for weight in case.first.weights} if case.first else {}
    before = values.get(step - 1) or begun.get(name) or values.get(step) or 0.0
    gradient = gradients.get(step, 0.0)
    rates = [group.get("lr") for group in optimizers[0].groups]
    rate = max((rate for rate in rates if isinstance(rate, int | float)), default=0.0)
    if (
        not (before and isfinite(before) and isfinite(gradient))
        or gradient < GRADIENT * before
        or rate * gradient < CHANGE * before
    ):
        return None
    earlier = {str(k): norm for k, norm in sorted(gradients.items()) if step - 8 < k <= step and isfinite(norm)}
    evidence = {
        "weight": name,
        "grad.norm": gradient,
        "weight.norm": before,
        "grad_over_weight": gradient / before,
        "changed_by": rate * gradient / before,
        "lr": rate,
        "clipped": False,
        "grad.norms": earlier,
    }
    line = optimizers[0].step_line
    return Explosion(name, step, gradient, gradient / before, rate * gradient / before, line, evidence)
