"""Where a step measures how far outputs are from targets: by a loss of the framework's, or by one's own difference."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from tensonde.diagnose.analysis.flow import consumers
from tensonde.model.ops import Trait, ops
from tensonde.model.trace import OpRecord, TensorFact, Trace

_DISTANCES = ops(Trait.DISTANCE)
_OWN_DISTANCES = ops(Trait.SQUARES | Trait.MAGNITUDES | Trait.TIMES)


def distances(trace: Trace) -> Iterator[tuple[OpRecord, TensorFact, TensorFact]]:
    """Ops that measure a distance, torch's or one's own, with output and target."""
    for op in trace.ops:
        own = op.op in ("sub", "rsub")
        if (op.op not in _DISTANCES and not own) or len(op.inputs) < 2:
            continue
        output, target = op.inputs[:2]
        if not output.requires_grad:
            output, target = target, output
        if target.requires_grad or not output.requires_grad or output.shape != target.shape or prod(target.shape) < 16:
            continue
        if own and not any(user.op in _OWN_DISTANCES for out in op.outputs[:1] for user in consumers(trace, out)):
            continue
        yield op, output, target
