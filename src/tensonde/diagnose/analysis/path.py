"""From a bad value in a trace back to the op that made it: the chain of values that are not finite.

An infinity that somebody put there (a mask of -Inf) is no origin; the op that could not cope with it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isinf

from tensonde.model.ops import Trait, ops
from tensonde.model.trace import OpRecord, TensorFact, Trace

INSERTING = ops(Trait.INSERTS)
"""Ops that put a given value into a tensor."""


def count(stats: Mapping[str, float], *names: str) -> float:
    return sum(stats.get(name, 0.0) for name in names)


def bad(stats: Mapping[str, float]) -> bool:
    return count(stats, "nan", "pos_inf", "neg_inf") > 0


@dataclass(frozen=True, slots=True)
class Origin:
    """`op` is where it began. `outside` is set when the op was given the bad value from outside the trace.
    `masks` are the infinities that it was given on purpose."""

    op: OpRecord
    outside: TensorFact | None = None
    masks: tuple[TensorFact, ...] = ()


def forward_origin(trace: Trace, start: int) -> Origin | None:
    """The first op in time that made what is wrong with the output of op `start`."""
    if not any(bad(fact.stats) for fact in trace.ops[start].outputs):
        return None
    found: list[Origin] = []
    waiting, seen = [start], set[int]()
    while waiting:
        index = waiting.pop()
        if index in seen:
            continue
        seen.add(index)
        op = trace.ops[index]
        wrong = [fact for fact in op.inputs if bad(fact.stats)]
        nans = [fact for fact in wrong if count(fact.stats, "nan")]
        is_nan = any(count(fact.stats, "nan") for fact in op.outputs)
        causes = nans if nans and is_nan else [fact for fact in wrong if not on_purpose(trace, fact)]
        if not causes:
            found.append(Origin(_inner(trace, op) or op, masks=tuple(wrong)))
        for fact in causes:
            if fact.producer is None or fact.producer >= index:
                found.append(Origin(op, outside=fact))
            else:
                waiting.append(fact.producer)
    if trace.reason != "first":  # weights that went bad before this step tell less than what goes bad in it
        found = [origin for origin in found if origin.outside is None or not origin.outside.name] or found
    return min(found, key=lambda origin: origin.op.index)


def _inner(trace: Trace, op: OpRecord) -> OpRecord | None:
    """Of an op that is made of others (a custom autograd function, a checkpoint): the first one that went wrong."""
    first = op.arguments.get("inner")
    if not isinstance(first, int):
        return None
    for part in trace.ops[first : op.index]:
        if any(bad(fact.stats) for fact in part.outputs) and not any(bad(fact.stats) for fact in part.inputs):
            return part
    return None


def on_purpose(trace: Trace, fact: TensorFact, depth: int = 8) -> bool:
    """Whether these infinities were put there: filled in, or added from a mask."""
    if count(fact.stats, "nan") or depth == 0:
        return False
    if fact.producer is None:
        return count(fact.stats, "pos_inf") == 0 and not fact.requires_grad and fact.stats.get("absmax", 0.0) in _MASKS
    op = trace.ops[fact.producer]
    wrong = [given for given in op.inputs if bad(given.stats)]
    if not wrong:
        if op.op.rstrip("_") in INSERTING or any(_infinite(value) for value in op.arguments.values()):
            return True
        return op.op == "log" and not fact.requires_grad and [given.stats.get("absmax") for given in op.inputs] == [1.0]
    return all(
        on_purpose(trace, given, depth - 1) for given in wrong if given.id != fact.id or given.producer != fact.producer
    )


_MASKS = (0.0, 1.0)


def _infinite(value: object) -> bool:
    return (isinstance(value, float) and isinf(value)) or value in ("Infinity", "-Infinity", "inf", "-inf")


def inserted_at(trace: Trace, fact: TensorFact, depth: int = 8) -> OpRecord | None:
    """The op that put the infinities into this tensor."""
    while fact.producer is not None and depth:
        op = trace.ops[fact.producer]
        wrong = [given for given in op.inputs if bad(given.stats)]
        if not wrong:
            return op
        fact, depth = wrong[0], depth - 1
    return None


def backward_origin(trace: Trace) -> OpRecord | None:
    """The op whose own derivative first turned a finite gradient into NaN or Inf, and whose inputs got it."""
    turned = sorted((op for op in trace.ops if "in.order" in op.gradient), key=lambda op: op.gradient["in.order"])
    for op in turned:
        if any(_reached(trace, fact) for fact in op.inputs):
            return op
    return None


def spoilt_before(trace: Trace, op: OpRecord) -> Origin | None:
    """Where values came from that were bad before `op` took them, and that the loss leaves out: a row of NaN that is
    selected away costs the loss nothing, and every gradient that is a product with it."""
    for fact in op.inputs:
        if not bad(fact.stats) or on_purpose(trace, fact):
            continue
        if fact.producer is None or fact.producer >= op.index:
            if not fact.name:
                return Origin(op, outside=fact)
            continue
        origin = forward_origin(trace, fact.producer)
        if origin is not None and (origin.outside is None or not origin.outside.name):
            return origin
    return None


def _reached(trace: Trace, fact: TensorFact) -> bool:
    """Whether the bad gradient arrived at this input."""
    if not fact.requires_grad:
        return False
    if fact.producer is None:
        return True
    gradient = trace.ops[fact.producer].gradient
    return not gradient or bad(gradient) or "nan" not in gradient


def amplifier(trace: Trace, op: OpRecord, times: float = 1e6) -> OpRecord | None:
    """Where numbers that overflow in `op` became huge: the one op before it that made them so out of ordinary ones,
    such as an exponential, a fraction or a recurrent layer. Growth from layer to layer has none."""
    for _ in range(64):
        sizes = [(_size(fact), k) for k, fact in enumerate(op.inputs) if fact.producer is not None]
        if not sizes:
            return None
        most, k = max(sizes)
        before = op.inputs[k].producer
        if most < times or before is None or before >= op.index:
            return None
        op = trace.ops[before]
        given = max((_size(fact) for fact in op.inputs), default=0.0)
        if given * times <= most and given < times:
            return op
    return None


def _size(fact: TensorFact) -> float:
    size = fact.stats.get("absmax", 0.0)
    return size if size == size else 0.0


def chain(trace: Trace, first: int, last: int, most: int = 12) -> list[OpRecord]:
    """A way of bad values from op `first` to op `last`."""
    way: list[OpRecord] = []
    index: int | None = last
    while index is not None and index > first and len(way) < 1000:
        op = trace.ops[index]
        way.append(op)
        before = [
            fact.producer
            for fact in op.inputs
            if bad(fact.stats) and fact.producer is not None and first <= fact.producer < index
        ]
        index = min(before, default=None)
    way = [trace.ops[first], *reversed(way)] if first != last else way
    return way if len(way) <= most else [*way[: most // 2], *way[-most // 2 :]]
