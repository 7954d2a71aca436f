"""Attention whose weights are decided before anything is learnt."""

from __future__ import annotations

from math import prod, sqrt

from tensonde.diagnose.analysis.flow import PASSING, consumers, made_by, producer, users
from tensonde.diagnose.case import Case
from tensonde.diagnose.rule import rule
from tensonde.model.finding import Finding
from tensonde.model.ops import Trait, ops
from tensonde.model.trace import OpRecord, TensorFact, Trace

_PRODUCTS = ops(Trait.PRODUCT)
_SCALING = ops(Trait.SCALES | Trait.DIVIDES_INTO | Trait.ROW_NORM | Trait.CAPS)
_MASKING = ops(Trait.MASKS | Trait.PLUS | Trait.REPLACES)
CONCENTRATED = 0.7
"""Mean sum of squared weights: 1 where each row is one-hot, 1/n where n keys count alike."""
SPREAD = 4.0
"""Standard deviation of scores; with 1/sqrt(d) it is about 1 at the start."""


@rule("attention-not-scaled", severity="warning", phase="forward")
def not_scaled(case: Case) -> list[Finding]:
    """The weights of a dot-product attention are nearly one-hot in the very first step. The scores, a product of two
    computed matrices, go into softmax unscaled, with a spread that grows as the square root of the number of
    features. The softmax is saturated, so queries and keys get almost no gradient, and learning starts slowly or not
    at all.

    Reported only if division by the square root would bring the scores to an ordinary spread. Scores that are scaled,
    or made from normalized vectors or loaded weights, are not reported.
    """
    trace = case.first
    if trace is None or trace.step > 0 or any(known.loaded for known in case.facts.parameters.values()):
        return []
    for op in trace.ops:
        if op.op not in ("softmax", "Softmax") or not op.inputs or not op.outputs or not op.inputs[0].requires_grad:
            continue
        weights = op.outputs[0]
        if (
            len(weights.shape) < 2
            or weights.shape[-1] < 4
            or op.arguments.get("dim") not in (-1, len(weights.shape) - 1)
        ):
            continue
        product = _scores(trace, op.inputs[0])
        if product is None or not _weigh(trace, weights):
            continue
        features = product.inputs[0].shape[-1]
        spread = product.outputs[0].stats.get("std", 0.0)
        rows = prod(weights.shape) / weights.shape[-1]
        concentration = weights.stats.get("norm", 0.0) ** 2 / rows
        if features < 16 or spread < SPREAD or spread / sqrt(features) > 4 or concentration < CONCENTRATED:
            continue
        return [
            case.finding(
                (
                    f"Attention weights are nearly one-hot in the first step: scores over {features} features, spread "
                    f"{spread:.3g}, are not scaled"
                ),
                f"Divide the scores by sqrt({features}), the square root of the features of a query.",
                step=trace.step,
                at=product,
                evidence={
                    "scores.std": spread,
                    "features": features,
                    "scaled.std": spread / sqrt(features),
                    "weights.mean_of_squares": concentration,
                    "keys": weights.shape[-1],
                    "softmax_line": str(op.source or ""),
                },
                confidence=0.85,
            )
        ]
    return []


def _scores(trace: Trace, fact: TensorFact) -> OpRecord | None:
    """The product of two computed matrices that these values are, but for masks."""
    op = made_by(trace, fact)
    for _ in range(4):
        if op is None:
            return None
        if op.op in _PRODUCTS:
            break
        if op.op not in _MASKING:
            return None
        grown = [given for given in op.inputs if given.requires_grad]
        op = made_by(trace, grown[0]) if len(grown) == 1 else None
    if op is None or op.op not in _PRODUCTS or len(op.inputs) != 2 or not op.outputs:
        return None
    sides = [made_by(trace, given) for given in op.inputs]
    for given, made in zip(op.inputs, sides, strict=True):
        if not given.requires_grad or given.name or made is None or made.op in _SCALING:
            return None
        if made.op in ("linear", "add", "addmm"):  # scaled before it was projected
            inner = producer(trace, made.inputs[0]) if made.inputs else None
            if inner is not None and inner.op == "normalize":
                return None
    return op


def _weigh(trace: Trace, weights: TensorFact) -> bool:
    """Whether they weigh values: a product follows, perhaps after dropout."""
    found = [user for user, _ in users(trace, weights)]
    found += [user for one in found if one.op in PASSING and one.outputs for user in consumers(trace, one.outputs[0])]
    return any(user.op in _PRODUCTS for user in found)
