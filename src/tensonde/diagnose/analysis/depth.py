"""The layers on the way to the loss, and whether the loss went anywhere."""

from __future__ import annotations

from math import isfinite
from statistics import fmean

from tensonde.diagnose.analysis.flow import ancestors
from tensonde.model.ops import Trait, ops
from tensonde.model.trace import OpRecord, Trace

_SQUASHING = ops(Trait.SQUASHES)
_LAYERS = ops(Trait.LAYER)


def stuck(losses: list[float]) -> bool:
    """The loss is, at the end, about what it was at the beginning."""
    quarter = len(losses) // 4
    if len(losses) < 40 or not all(map(isfinite, losses)):
        return False
    first, last = fmean(losses[:quarter]), fmean(losses[-quarter:])
    return first > 0 and last > 0.95 * first


def layers_and_squashing(trace: Trace) -> tuple[list[tuple[OpRecord, str]], list[OpRecord]]:
    """Layers with their weights, and squashing activations, on the way to the loss and in the order of their calls."""
    assert trace.loss is not None
    on_the_way = ancestors(trace, trace.ops[trace.loss])
    layers, squashing = [], []
    for op in trace.ops:
        if op.index not in on_the_way or not op.outputs or not op.outputs[0].requires_grad:
            continue
        if op.op in _SQUASHING:
            squashing.append(op)
        elif op.op in _LAYERS:
            layers += [
                (op, fact.name) for fact in op.inputs if fact.name and len(fact.shape) >= 2 and fact.requires_grad
            ]
    return layers, squashing
