"""Scores of classes: what makes probabilities of them, in one op or in several, and what was done to them before."""

from __future__ import annotations

from tensonde.diagnose.analysis.flow import PASSING, consumers, made_by, producer
from tensonde.model.ops import Trait, ops
from tensonde.model.trace import OpRecord, TensorFact, Trace

_SIGMOID = ops(Trait.SIGMOID)
_SOFTMAX = {op for op in ops(Trait.SOFTMAX) if op.lower() == "softmax"}
_RECTIFYING = ops(Trait.ZERO_BELOW)
_TAKES_LOGITS = ops(Trait.TAKES_LOGITS)
_NORMALISING = {op for op in ops(Trait.SOFTMAX) if op.lower().endswith("softmax")} | {"logsumexp"}
_GATES = frozenset(("sigmoid", "logsigmoid"))
_BETWEEN = PASSING | ops(Trait.NEGATES | Trait.ADDS | Trait.CLAMPS) | {"log", "log_", "pow", "log1p"}


def activation(trace: Trace, op: OpRecord) -> str:
    """`softmax`, `sigmoid` or `relu`, where an op is one; softmax may be written out."""
    if op.op in _RECTIFYING:
        return "relu"
    if op.op in _SIGMOID:
        return "sigmoid"
    return "softmax" if op.op in _SOFTMAX or own_softmax(trace, op) is not None else ""


def own_softmax(trace: Trace, op: OpRecord) -> int | None:
    """The dimension of `e / e.sum(dim, keepdim=True)` with `e = exp(...)`; None for any other op."""
    if op.op not in ("div", "truediv") or len(op.inputs) != 2 or not op.outputs:
        return None
    made, total = made_by(trace, op.inputs[0]), made_by(trace, op.inputs[1], PASSING | ops(Trait.CLAMPS) | {"add"})
    if made is None or total is None or made.op != "exp" or total.op != "sum" or not total.inputs:
        return None
    if total.inputs[0].id != op.inputs[0].id:
        return None
    dim = total.arguments.get("dim", total.arguments.get("1"))
    dim = dim[0] if isinstance(dim, list) and len(dim) == 1 else dim
    size = len(op.outputs[0].shape)
    return dim % size if isinstance(dim, int) and -size <= dim < size else None


def takes_scores(trace: Trace, op: OpRecord, inner: str) -> bool:
    """Whether an op makes (log-)probabilities of scores that a loss then compares with targets. After ReLU, a gate or attention weights
    may well follow, so that only classes count."""
    if op.op in _TAKES_LOGITS:
        return True
    if op.op in _GATES:
        return inner == "sigmoid" and _meets_targets(trace, op)
    if op.op == "logsumexp":
        return _less_the_right_one(trace, op)
    return op.op in _NORMALISING and _meets_targets(trace, op)


def _meets_targets(trace: Trace, op: OpRecord) -> bool:
    """Its values are picked by, or multiplied with, targets, or go to a loss over classes."""
    frontier, seen = list(op.outputs[:1]), {fact.id for fact in op.outputs}
    for _ in range(5):
        following: list[TensorFact] = []
        for fact in frontier:
            for user in consumers(trace, fact)[:8]:
                others = [given for given in user.inputs if given.id not in seen]
                if user.op in ("nll_loss", "kl_div", "ctc_loss", "binary_cross_entropy"):
                    return True
                if user.op in ("gather", "getitem", "take_along_dim") and any(_classes(given) for given in others):
                    return True
                if user.op == "mul" and any(_marks(given) and given.shape == fact.shape for given in others):
                    return True
                if (
                    (user.op in _BETWEEN or user.op in ("rsub", "sub"))
                    and user.outputs
                    and user.outputs[0].id not in seen
                ):
                    seen.add(user.outputs[0].id)
                    following.append(user.outputs[0])
        frontier = following
    return False


def _classes(fact: TensorFact) -> bool:
    return fact.dtype.startswith("int") and not fact.requires_grad and bool(fact.shape)


def _marks(fact: TensorFact) -> bool:
    """Ones where a class is right."""
    return (
        not fact.requires_grad
        and len(fact.shape) >= 1
        and fact.stats.get("max") == 1.0
        and fact.stats.get("min") == 0.0
    )


def _less_the_right_one(trace: Trace, op: OpRecord) -> bool:
    """`logsumexp(scores) - scores[target]`"""
    for user in consumers(trace, op.outputs[0]) if op.outputs else ():
        if user.op not in ("sub", "rsub"):
            continue
        for given in user.inputs:
            picked = producer(trace, given)
            for _ in range(4):
                if picked is None or picked.op in ("gather", "take_along_dim"):
                    break
                picked = producer(trace, picked.inputs[0]) if picked.op in PASSING and picked.inputs else None
            if picked is not None and picked.op == "gather" and picked.inputs[0].id == op.inputs[0].id:
                return True
    return False
