"""Terms of one loss that are reduced in different ways."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tensonde.diagnose.analysis.flow import PASSING, producer
from tensonde.diagnose.case import Case
from tensonde.diagnose.rule import rule
from tensonde.model.finding import Finding
from tensonde.model.ops import Trait, ops
from tensonde.model.trace import OpRecord, TensorFact, Trace

_LAYERS = ops(Trait.WEIGHTED)
_SQUARES = ops(Trait.SQUARES | Trait.TIMES)
_DENSITIES = ops(Trait.DENSITY)
SMALL = 0.1
"""A factor below it is a weight that somebody chose."""
LARGE = 4.0


@dataclass(frozen=True, slots=True)
class Term:
    """`op` gives one number, times `factor`, to the loss."""

    op: OpRecord
    factor: float


@rule("terms-reduced-differently", severity="error", phase="forward")
def reduced_differently(case: Case) -> list[Finding]:
    """A loss adds two terms without a weight: one is averaged over all values of the batch, the other is a divergence
    that is summed over it. The sum is larger by batch size times features, and the averaged term has no influence. In
    a variational autoencoder, the latent code then carries nothing (posterior collapse).

    What is summed must be the closed form of a divergence (squares with an exponential or a logarithm, of outputs
    alone, not of data): elsewhere, sums are a matter of taste. A factor of less than a tenth, or one that makes the
    average larger, is a weight, and then the rule is silent.
    """
    trace = case.first
    if trace is None or trace.loss is None:
        return []
    found = terms(trace, trace.ops[trace.loss])
    for mean in found:
        values = _averaged(mean.op)
        if values is None or len(values) < 2 or values[0] < 2 or abs(mean.factor) > LARGE:
            continue
        for other in found:
            summed = _summed(other.op)
            if summed is None or summed.shape[0] != values[0] or abs(other.factor) < SMALL:
                continue
            if prod(summed.shape) >= 16 and _divergence(trace, summed, values[0]):
                return [_finding(case, mean, other, values, summed)]
    return []


def terms(trace: Trace, op: OpRecord, factor: float = 1.0, depth: int = 16) -> list[Term]:
    """What a loss is a sum of."""
    if depth == 0 or not op.inputs or (op.outputs and op.outputs[0].shape != ()):
        return []
    name = op.op.rstrip("_")
    given = [fact for fact in op.inputs if fact.requires_grad]
    if name in ("add", "radd", "sub", "rsub", *PASSING):
        made = [producer(trace, fact) for fact in given]
        return [term for one in made if one is not None for term in terms(trace, one, factor, depth - 1)]
    if name in ("mul", "rmul", "div", "truediv", "neg") and len(given) == 1:
        scale = _scale(op, name)
        made_one = producer(trace, given[0])
        return terms(trace, made_one, factor * scale, depth - 1) if scale is not None and made_one is not None else []
    return [Term(op, factor)]


def _scale(op: OpRecord, name: str) -> float | None:
    if name == "neg":
        return -1.0
    others = [fact.stats.get("absmax") for fact in op.inputs if not fact.requires_grad]
    number = op.arguments.get("other", op.arguments.get("1", others[0] if others else None))
    if not isinstance(number, int | float) or number == 0 or number != number:
        return 0.0 if number == 0 else None
    return 1.0 / number if "div" in name else float(number)


def _averaged(op: OpRecord) -> tuple[int, ...] | None:
    """The shape of what an op takes the average of, over everything."""
    if op.op == "mean" or (op.op.endswith("_loss") and op.arguments.get("reduction") == "mean"):
        return op.inputs[0].shape
    plain = op.op.startswith("binary_cross_entropy") and op.arguments.get("reduction", "mean") == "mean"
    return op.inputs[0].shape if plain else None


def _summed(op: OpRecord) -> TensorFact | None:
    fact = op.inputs[0] if op.op == "sum" and op.inputs else None
    return fact if fact is not None and len(fact.shape) >= 1 and fact.requires_grad else None


def _divergence(trace: Trace, fact: TensorFact, batch: int) -> bool:
    """Squares, and an exponential or a logarithm, of what layers give, and no data."""
    seen: set[int] = set()
    ops: set[str] = set()
    waiting = [fact]
    while waiting and len(seen) < 48:
        fact = waiting.pop()
        op = producer(trace, fact)
        if op is None:
            if not fact.requires_grad and fact.shape[:1] == (batch,):
                return False
            continue
        if op.op in _LAYERS or op.index in seen:
            continue
        seen.add(op.index)
        ops.add(op.op.rstrip("_"))
        waiting += op.inputs
    return bool(ops & _SQUARES) and bool(ops & _DENSITIES) and not any(name.startswith("rand") for name in ops)


def _finding(case: Case, mean: Term, other: Term, values: tuple[int, ...], summed: TensorFact) -> Finding:
    made = case.module(mean.op.module)
    sizes = [term.op.outputs[0].stats.get("absmax", 0.0) * abs(term.factor) for term in (mean, other)]
    return case.finding(
        (
            f"{mean.op.op} is averaged over {list(values)}, and the term added to it is summed over {list(summed.shape)}: the sum outweighs it"
        ),
        "Reduce both the same way: sum both (reduction='sum'), or sum over the features of a sample and average over the batch in both.",
        site=f"{mean.op.site}:out",
        op=mean.op.op,
        source=(made.made if made.library else None) or mean.op.source,
        evidence={
            "averaged_values": prod(values),
            "summed_values": prod(summed.shape),
            "averaged_term": float(f"{sizes[0]:.3g}"),
            "summed_term": float(f"{sizes[1]:.3g}"),
            "summed_at": str(other.op.source or other.op.site),
        },
        confidence=0.9,
    )
