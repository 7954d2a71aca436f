"""Where values come from and go to in a trace."""

from __future__ import annotations

from collections.abc import Iterable

from tensonde.model.ops import Trait, ops
from tensonde.model.trace import OpRecord, TensorFact, Trace

PASSING = ops(Trait.PASSES)
"""Ops that pass values on as they are, in another shape or dtype."""


def producer(trace: Trace, fact: TensorFact) -> OpRecord | None:
    return trace.ops[fact.producer] if fact.producer is not None and fact.producer < len(trace.ops) else None


def made_by(trace: Trace, fact: TensorFact, passing: frozenset[str] = PASSING) -> OpRecord | None:
    """The op that computed these values, looking through what merely passes them on."""
    op = producer(trace, fact)
    for _ in range(32):
        if op is None or op.op not in passing or not op.inputs:
            return op
        op = producer(trace, op.inputs[0])
    return op


def consumers(trace: Trace, fact: TensorFact) -> list[OpRecord]:
    """Ops that take this very tensor, as it was given."""
    first = fact.producer if fact.producer is not None else -1
    return [op for op in trace.ops[first + 1 :] if any(given.id == fact.id for given in op.inputs)]


_IN_PLACE_OF = ops(Trait.DROPS | Trait.FILLS | Trait.REPLACES | Trait.COPIES | Trait.CASTS)
"""Ops after which each value stands where it stood, as it was or not at all."""


_RESHAPING = ops(Trait.RESHAPES)
_MULTIPLYING = ops(Trait.SCALES)


def users(trace: Trace, fact: TensorFact) -> list[tuple[OpRecord, TensorFact]]:
    """Ops that use these values, looking through dropout, masks, scales and casts, each with the tensor that it takes: its
    last two dimensions are those of `fact`. What divides by a sum makes other weights of them, and ends the way."""
    found: list[tuple[OpRecord, TensorFact]] = []
    waiting, seen = [fact], {fact.id}
    while waiting and len(found) < 64:
        given = waiting.pop(0)
        for op in consumers(trace, given):
            found.append((op, given))
            out = op.outputs[0] if op.outputs else None
            if out is None or out.id in seen or out.shape[-2:] != fact.shape[-2:]:
                continue
            alike = op.op in _IN_PLACE_OF and out.shape == given.shape
            if alike or op.op in _RESHAPING or (op.op in _MULTIPLYING and _by_mask(op, given, out)):
                seen.add(out.id)
                waiting.append(out)
    return found


def _by_mask(op: OpRecord, given: TensorFact, out: TensorFact) -> bool:
    """The other factor is a number, or a mask of values from 0 to 1."""
    others = [other for other in op.inputs if other.id != given.id]
    if out.shape != given.shape or any(other.requires_grad for other in others):
        return False
    return all(
        not other.shape or ("mul" in op.op and other.stats.get("min", 0.0) >= 0 and other.stats.get("max", 1.0) <= 1)
        for other in others
    )


def parameters_behind(trace: Trace, facts: Iterable[TensorFact]) -> set[str]:
    """Names of parameters that these values were computed from."""
    found: set[str] = set()
    seen: set[int] = set()
    waiting = list(facts)
    while waiting:
        fact = waiting.pop()
        if fact.name:
            found.add(fact.name)
        if fact.producer is not None and fact.producer not in seen:
            seen.add(fact.producer)
            waiting += trace.ops[fact.producer].inputs
    return found


def ancestors(trace: Trace, op: OpRecord) -> set[int]:
    """Indices of the ops that an op was computed from, and its own."""
    seen = {op.index}
    waiting = [op]
    while waiting:
        for fact in waiting.pop().inputs:
            made = producer(trace, fact)
            if made is not None and made.index not in seen:
                seen.add(made.index)
                waiting.append(made)
    return seen
