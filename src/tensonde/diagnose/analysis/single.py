"""Normalisations over a single value."""

from __future__ import annotations

from math import prod

from tensonde.diagnose.case import Case
from tensonde.diagnose.told import where
from tensonde.model.finding import Finding
from tensonde.model.trace import OpRecord


def one_value(case: Case) -> list[Finding]:
    """A normalisation over a single value, of which only the layer's bias comes out."""
    trace = case.first
    for op in trace.ops if trace is not None else ():
        size = _normalised(op)
        if size != 1 or not op.inputs[0].requires_grad:
            continue
        return [
            case.finding(
                f"{op.op} over a single value{where(op)}: 0 whatever comes in, and no gradient before it",
                "Normalize over more than one value (the features of a sample, not each on its own), or remove it.",
                site=f"{op.site}:out",
                op=op.op,
                source=made.made if (made := case.module(op.module)).library and made.made else op.source,
                evidence={"in.shape": list(op.inputs[0].shape), "values": 1},
                confidence=0.95,
            )
        ]
    return []


def _normalised(op: OpRecord) -> int | None:
    """Over how many values an op takes mean and variance."""
    if not op.inputs:
        return None
    shape = op.inputs[0].shape
    if op.op in ("layer_norm", "rms_norm"):
        given = op.arguments.get("normalized_shape", op.arguments.get("1"))
        return prod(given) if isinstance(given, list | tuple) and op.op == "layer_norm" else None
    if op.op == "group_norm" and len(shape) >= 2:
        groups = op.arguments.get("num_groups", op.arguments.get("1"))
        return prod(shape[1:]) // groups if isinstance(groups, int) and groups > 0 else None
    return None
