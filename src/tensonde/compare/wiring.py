"""What two ops are fed with: where the same op takes another tensor, the defect is in the wiring."""

from __future__ import annotations

from typing import Any

from tensonde.compare.forward import StepPair
from tensonde.model.trace import OpRecord, TensorFact, Trace


def wiring(pair: StepPair, op: OpRecord, other: OpRecord) -> dict[str, Any]:
    """The inputs of both by the places that they come from, in A's words."""
    mine = [_origin(pair.a, fact) for fact in op.inputs]
    theirs = []
    for fact in other.inputs:
        apart, counterpart = pair.values_a.nearest(fact)
        known = counterpart is not None and apart.relative < 1e-4
        theirs.append(
            _origin(pair.a, counterpart) if known and counterpart is not None else _origin(pair.b, fact) + " (there)"
        )
    return {"takes": mine, "other_takes": theirs} if mine or theirs else {}


def _origin(trace: Trace, fact: TensorFact) -> str:
    """The outermost place that gives it: a module, else an op; a parameter's name; or outside."""
    if fact.name:
        return fact.name
    if fact.producer is None:
        return "from outside"
    giving = [
        call for call in trace.calls if any(out.id == fact.id and out.producer == fact.producer for out in call.outputs)
    ]
    if giving:
        return f"{max(giving, key=lambda call: call.number).module}:out"
    return f"{trace.ops[fact.producer].site}:out"
