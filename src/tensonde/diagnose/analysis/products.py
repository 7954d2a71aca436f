"""A product of (N, 1) with (N,) that was meant sample by sample: it is averaged as a whole."""

from __future__ import annotations

from tensonde.diagnose.analysis.flow import PASSING, consumers, made_by, producer
from tensonde.model.ops import Trait, ops
from tensonde.model.trace import OpRecord, TensorFact, Trace

_UNARY = ops(Trait.UNARY)
_BETWEEN = ops(Trait.EXTREMES)
_SCALED = ops(Trait.ARITHMETIC)
_TABLES = ops(Trait.CONSTANT)
_POWERS = ops(Trait.SQUARES | Trait.MAGNITUDES)


def multiplied(trace: Trace, op: OpRecord, column: TensorFact, row: TensorFact) -> bool:
    """Both have a value for each sample that is fed to a model, neither is one value throughout, nobody asked for a column, and
    all N x N products go into one mean or sum."""
    if column.shape[0] not in _samples(trace) or not all(_varies(fact) for fact in (column, row)):
        return False
    made, table = producer(trace, column), made_by(trace, row)
    if (made is not None and made.arguments.get("keepdim") is True) or (table is not None and table.op in _TABLES):
        return False
    return averaged(trace, op.outputs[0])


def compared(trace: Trace, op: OpRecord, column: TensorFact, row: TensorFact) -> bool:
    """One side is a model's output and the other a target, both with a value for each sample that is fed to a model, and all N x N
    differences go into one mean or sum: whoever wanted a column did not want that. Two views of one tensor are pairs on purpose."""
    sources = [_source(trace, fact) for fact in (column, row)]
    if (
        column.shape[0] not in _samples(trace)
        or not all(_varies(fact) for fact in (column, row))
        or sources[0] == sources[1]
    ):
        return False
    return averaged(trace, op.outputs[0], through=_POWERS)


def _source(trace: Trace, fact: TensorFact) -> int:
    """The tensor that a value is a view of."""
    for _ in range(16):
        op = producer(trace, fact)
        if op is None or op.op not in PASSING or not op.inputs:
            return fact.id
        fact = op.inputs[0]
    return fact.id


def _samples(trace: Trace) -> set[int]:
    """Batch sizes of calls from outside."""
    return {
        fact.shape[0] for call in trace.calls if call.parent is None for fact in call.inputs[:4] if len(fact.shape) >= 2
    }


def _varies(fact: TensorFact) -> bool:
    return fact.stats.get("std", 0.0) > 1e-6 * max(fact.stats.get("absmax", 0.0), 1e-12)


def averaged(trace: Trace, fact: TensorFact, through: frozenset[str] = frozenset()) -> bool:
    """Goes into one mean or sum over all, by way of nothing but signs, bounds and factors."""
    for _ in range(8):
        users = consumers(trace, fact)
        if len(users) != 1:
            return False
        user = users[0]
        others = [given for given in user.inputs if given.id != fact.id]
        if user.op in ("mean", "sum", "nanmean", "nansum"):
            return user.arguments.get("dim") in (None, []) and bool(user.outputs) and user.outputs[0].shape == ()
        if user.op in through & PASSING and not others and user.outputs:
            fact = user.outputs[0]
            continue
        small = all(len(given.shape) == 0 for given in others)
        same = all(given.shape == fact.shape for given in others)
        known = (
            user.op in _UNARY
            or (user.op in through and (small or same))
            or (user.op in _SCALED and small)
            or (user.op in _BETWEEN and others and same)
        )
        if not known or not user.outputs or user.outputs[0].shape != fact.shape:
            return False
        fact = user.outputs[0]
    return False
