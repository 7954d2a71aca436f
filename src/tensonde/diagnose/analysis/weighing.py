"""Softmax as weights of a sum: the dimension that the product after it sums over."""

from __future__ import annotations

from tensonde.diagnose.analysis.flow import PASSING, made_by, users
from tensonde.model.ops import Trait, ops
from tensonde.model.trace import OpRecord, TensorFact, Trace

PRODUCTS = ops(Trait.PRODUCT | Trait.DOT)
_BETWEEN = ops(Trait.SCALES | Trait.MASKS | Trait.PLUS | Trait.REPLACES | Trait.TEMPERS) | {"exp"}
"""Ops that scores go through on their way to softmax; of one that is written out, `exp` is the last."""


def summed_elsewhere(trace: Trace, op: OpRecord, dim: int) -> str:
    """The product that uses these weights, where it sums over another dimension than softmax was taken over; else "".

    Only attention is meant, whose scores are themselves a product of two computed tensors, or a softmax over the batch. A soft
    assignment to clusters (pooling of graphs, NetVLAD, mixtures) is normalised over clusters and summed over members.
    """
    out = op.outputs[0]
    dims = len(out.shape)
    if not (dims >= 3 and dim == 0) and not _attention(trace, op.inputs[0]):
        return ""
    for user, taken in users(trace, out):
        sums = _sums(user, taken)
        if any(-k <= dims and out.shape[k] > 1 for k in sums) and out.shape[dim] > 1 and dim - dims not in sums:
            return f"the {user.op} that follows sums over dimension {min(sums) % dims}"
    return ""


def _sums(op: OpRecord, taken: TensorFact) -> set[int]:
    """Dimensions of `taken`, counted from the last, that the product sums over."""
    if op.op not in PRODUCTS or len(op.inputs) < 2:
        return set()
    sides = op.inputs[-2:]  # what baddbmm adds to is before them
    places = [k for k, given in enumerate(sides) if given.id == taken.id]
    if len(places) != 1:
        return set()
    if op.op != "einsum":
        return {-1 if places[0] == 0 else -2}
    left, arrow, right = str(op.arguments.get("equation", "")).replace(" ", "").partition("->")
    terms = left.split(",")
    if not arrow or len(terms) != len(op.inputs) or "." in left:
        return set()
    term = terms[len(op.inputs) - 2 + places[0]]
    return {k - len(term) for k, letter in enumerate(term) if letter not in right}


def _attention(trace: Trace, scores: TensorFact) -> bool:
    fact = scores
    for _ in range(12):
        op = made_by(trace, fact)
        if op is None:
            return False
        if op.op in PRODUCTS:
            sides = op.inputs[-2:]
            return len(sides) == 2 and all(_computed(trace, side) for side in sides)
        if op.op not in _BETWEEN or not op.inputs:
            return False
        fact = next((given for given in op.inputs if given.requires_grad), op.inputs[0])
    return False


def _computed(trace: Trace, fact: TensorFact) -> bool:
    """No parameter, seen from another side or not."""
    for _ in range(32):
        if fact.name:
            return False
        op = trace.ops[fact.producer] if fact.producer is not None and fact.producer < len(trace.ops) else None
        if op is None or op.op not in PASSING or not op.inputs:
            return True
        fact = op.inputs[0]
    return True
