"""Which way a loss goes with what it is made of: whether making it smaller makes an error, or a likelihood, smaller."""

from __future__ import annotations

from dataclasses import dataclass

from tensonde.diagnose.analysis.flow import PASSING, made_by, producer
from tensonde.model.ops import Trait, ops
from tensonde.model.trace import OpRecord, Trace

_ERRORS = ops(Trait.LOSS_FROM_ZERO)
"""Losses that are best when they are small."""
_AVERAGES = frozenset(("mean", "sum", "nanmean", "nansum"))
_RISING = ops(Trait.CLAMPS) | {"log", "log_", "exp", "sqrt"}
_SUMS = ops(Trait.PLUS | Trait.JOINS) | {"iadd"}
_POWERS = ops(Trait.SQUARES | Trait.MAGNITUDES)
MOST = 64


@dataclass(frozen=True, slots=True)
class Term:
    """`op` is an error (small is good), or picks the (log-)probabilities of the right classes (`likelihood`, large is good). `sign`: which way it goes
    where the loss rises. `turned`: the op that turned it around last."""

    op: OpRecord
    sign: int
    likelihood: bool
    turned: OpRecord | None = None

    @property
    def made_worse(self) -> bool:
        return (self.sign > 0) == self.likelihood


def terms(trace: Trace, loss: OpRecord) -> list[Term]:
    """What a loss is the sum of, but for penalties of parameters; empty where there is something else in it, or its way is not known."""
    found: list[Term] = []
    waiting: list[tuple[OpRecord, int, OpRecord | None]] = [(loss, 1, None)]
    for _ in range(MOST):
        if not waiting:
            return found
        op, sign, turned = waiting.pop(0)
        if op.op in _ERRORS or _right_classes(trace, op):
            found.append(Term(op, sign, op.op not in _ERRORS, turned))
            continue
        if of_parameters(trace, op):
            continue
        live = [fact for fact in op.inputs if fact.requires_grad]
        factor = _factor(op) if op.op in ("mul", "rmul", "div", "truediv", "mul_", "div_") else 1
        plain = op.op in _SUMS or op.op in _AVERAGES or op.op in PASSING or op.op in _RISING
        if op.op == "neg" or factor < 0:
            sign, turned = -sign, op
        elif (
            not factor
            or not (plain or op.op in ("mul", "rmul", "div", "truediv", "mul_", "div_"))
            or (not live and op.inputs)
        ):
            return []
        made = [producer(trace, fact) for fact in live]
        if not live or any(one is None for one in made):
            return []
        waiting += [(one, sign, turned) for one in made if one is not None]
    return []


def _factor(op: OpRecord) -> int:
    """The sign of what an op multiplies with, or divides by; 0 where it is not known."""
    others = [fact for fact in op.inputs if not fact.requires_grad]
    if len(op.inputs) - len(others) != 1 or (others and op.inputs[0] is others[0] and op.op not in ("mul", "rmul")):
        return 0
    if others:
        return 1 if others[0].stats.get("min", -1.0) >= 0 else -1 if others[0].stats.get("max", 1.0) < 0 else 0
    value = op.arguments.get("other", op.arguments.get("1", op.arguments.get("value")))
    if not isinstance(value, int | float) or value == 0:
        return 0
    return 1 if value > 0 else -1


def _right_classes(trace: Trace, op: OpRecord) -> bool:
    """Takes the values of the right classes out of (log-)probabilities."""
    if op.op not in ("gather", "getitem", "take_along_dim") or len(op.inputs) < 2 or not op.inputs[0].requires_grad:
        return False
    if not any(fact.dtype.startswith("int") and fact.shape for fact in op.inputs[1:]):
        return False
    made = made_by(trace, op.inputs[0], PASSING | _RISING | {"add"})
    return made is not None and made.op in ("softmax", "log_softmax") and len(op.inputs[0].shape) >= 2


def of_parameters(trace: Trace, op: OpRecord) -> bool:
    """A penalty: computed from parameters alone, by powers and sums."""
    waiting, steps = [op], 0
    while waiting and steps < 256:
        one, steps = waiting.pop(), steps + 1
        if one.op not in _POWERS | _SUMS | _AVERAGES | {"mul", "rmul", "div", "sqrt"}:
            return False
        for fact in one.inputs:
            if fact.name:
                continue
            made = producer(trace, fact)
            if made is None:
                return False
            waiting.append(made)
    return not waiting


def gets_worse(values: list[float]) -> bool:
    """By a fifth from the first tenth to the last, in size."""
    tenth = max(1, len(values) // 10)
    first, end = (sum(map(abs, part)) / tenth for part in (values[:tenth], values[-tenth:]))
    return len(values) >= 10 and end >= 1.2 * first
