"""A loss that is multiplied by a large number right before it is differentiated.

Gradients grow by the same factor. A loss scaler divides them again; where nothing does, plain SGD takes steps that are so many times longer. Adaptive
optimizers divide a factor out by themselves.
"""

from __future__ import annotations

from dataclasses import dataclass

from tensonde.diagnose.case import Case
from tensonde.model.facts import OptimizerFact
from tensonde.model.ops import Trait, ops
from tensonde.model.trace import OpRecord

LARGE = 16.0
_TIMES = ops(Trait.TIMES)
_PLAIN = ("SGD", "Momentum")
"""Optimizers whose step is proportional to the gradient."""


@dataclass(frozen=True)
class Factor:
    op: OpRecord
    by: float


def loss_factor(case: Case, optimizer: OptimizerFact | None) -> Factor | None:
    """The last op of the loss, if it multiplies by a number of at least LARGE, no scaler is at work and the optimizer feels it."""
    trace = case.first
    if (
        trace is None
        or trace.loss is None
        or optimizer is None
        or optimizer.type not in _PLAIN
        or case.facts.clipping.scalers
    ):
        return None
    last = trace.ops[trace.loss]
    numbers = [v for v in last.arguments.values() if isinstance(v, int | float) and not isinstance(v, bool)]
    if last.op.strip("_") not in _TIMES or len(last.inputs) != 1 or len(numbers) != 1 or abs(numbers[0]) < LARGE:
        return None
    return Factor(last, float(numbers[0]))
