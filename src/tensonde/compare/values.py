"""The values of a traced step, found again by what they are: the same tensor of the other run under any name.

Two programs that compute the same need not do so by the same ops. A tensor of one step is looked for among all tensors of
the other that have as many elements; the nearest is its counterpart.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tensonde.compare.distance import APART, Distance, Vector, distance, sketch
from tensonde.model.trace import TensorFact, Trace

Key = tuple[int, int | None, float]


def key_of(fact: TensorFact) -> Key:
    """An in-place op gives its input's id again, with another value."""
    return fact.id, fact.producer, fact.stats.get("sketch.0", fact.stats.get("norm", 0.0))


def facts_of(trace: Trace) -> Iterator[TensorFact]:
    for op in trace.ops:
        yield from op.inputs
        yield from op.outputs
    for call in trace.calls:
        yield from call.inputs
        yield from call.outputs


class Values:
    def __init__(self, trace: Trace) -> None:
        buckets: dict[float, dict[Key, TensorFact]] = {}
        for fact in facts_of(trace):
            if fact.stats:
                buckets.setdefault(fact.stats["count"], {}).setdefault(key_of(fact), fact)
        self._buckets: dict[float, tuple[list[TensorFact], Vector | None]] = {}
        for count, found in buckets.items():
            facts = list(found.values())
            sketches = [sketch(fact.stats) for fact in facts]
            whole = all(one is not None for one in sketches)
            self._buckets[count] = facts, np.array(sketches) if whole else None
        self._nearest: dict[Key, tuple[Distance, TensorFact | None]] = {}

    def nearest(self, fact: TensorFact) -> tuple[Distance, TensorFact | None]:
        key = key_of(fact)
        if key not in self._nearest:
            self._nearest[key] = self._find(fact)
        return self._nearest[key]

    def _find(self, fact: TensorFact) -> tuple[Distance, TensorFact | None]:
        if not fact.stats or fact.stats["count"] not in self._buckets:
            return APART, None
        facts, sketches = self._buckets[fact.stats["count"]]
        mine = sketch(fact.stats)
        order = range(len(facts))
        if mine is not None and sketches is not None:
            apart = np.mean((sketches - mine) ** 2, axis=1)
            order = [int(k) for k in np.argsort(apart, kind="stable")[:4]]  # type: ignore[assignment]
        best: tuple[Distance, TensorFact | None] = (APART, None)
        for k in order:
            found = distance(fact.stats, facts[k].stats)
            better = found.relative < best[0].relative
            shaped = found.relative == best[0].relative and best[1] is not None and best[1].shape != fact.shape
            if better or (shaped and facts[k].shape == fact.shape):
                best = found, facts[k]
        return best
