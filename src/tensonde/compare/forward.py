"""The forward pass of one step in both runs: the first place whose inputs agree and whose outputs do not.

An op that is given another argument needs to show no more than the least difference for it.

Places are module calls, and ops where both runs do the same ops in the same order. Where a module's output differs though
its inputs agree, its ops are searched by value: from the output back to the op all of whose inputs exist in the other run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from tensonde.compare.choices import arguments
from tensonde.compare.distance import AMPLIFICATION, APART, Distance, distance, dtype_floor, epsilon, floor
from tensonde.compare.pairing import Pairing
from tensonde.compare.values import Values
from tensonde.model.ops import Trait, ops
from tensonde.model.trace import CallRecord, OpRecord, TensorFact, Trace

ADDITIVE = ops(Trait.SUMS_UP)
"""Sums: what is left after cancellation is as exact as what went in, not as what came out."""


_LAYOUT = ops(Trait.LAYOUT)


@dataclass(frozen=True)
class Place:
    """Where the runs part. Op or call of A, and of B as far as there is one."""

    kind: Literal["op", "call", "state"]
    op: OpRecord | None
    other_op: OpRecord | None
    call: CallRecord | None
    other_call: CallRecord | None
    found: Distance
    given: float
    """The largest relative difference among the inputs."""
    tensor: TensorFact | None = None
    """Of a module's state."""


class StepPair:
    """One traced step of both runs."""

    def __init__(self, a: Trace, b: Trace, pairing: Pairing, drift: Mapping[str, float] | None = None) -> None:
        """`drift`: by how much parameters of A differ from their partners when the step begins."""
        self.a, self.b, self.pairing = a, b, pairing
        self.values_a, self.values_b = Values(a), Values(b)
        self.drift = drift or {}
        self.calls = self._pair_calls()
        self.ops = self._pair_ops()
        self.compared = 0
        self.largest = 0.0
        """The largest relative difference that was taken for rounding."""

    # -- pairs -----------------------------------------------------------------------------------

    def _pair_calls(self) -> list[tuple[CallRecord, CallRecord]]:
        theirs: dict[tuple[str, bool], list[CallRecord]] = {}
        for call in sorted(self.b.calls, key=lambda call: call.number):
            theirs.setdefault((call.module, call.grad_enabled), []).append(call)
        found = []
        for call in sorted(self.a.calls, key=lambda call: call.number):
            partners = theirs.get((self.pairing.module(call.module) or "", call.grad_enabled))
            if partners:
                found.append((call, partners.pop(0)))
        return found

    def _pair_ops(self) -> list[tuple[OpRecord, OpRecord]]:
        """Ops of paired calls, and those outside of all calls, where the same ones come in the same order."""
        own_a, own_b = _own_ops(self.a), _own_ops(self.b)
        after = _of_gradients(self.a)
        pairs: list[tuple[OpRecord, OpRecord]] = []
        numbers: list[tuple[int | None, int | None]] = [(None, None)]
        numbers += [(call.number, other.number) for call, other in self.calls]
        for one, other in numbers:
            mine, theirs = own_a.get(one, []), own_b.get(other, [])
            if len(mine) == len(theirs) and all(x.op == y.op for x, y in zip(mine, theirs, strict=True)):
                pairs += [(x, y) for x, y in zip(mine, theirs, strict=True) if x.index not in after]
        return sorted(pairs, key=lambda pair: pair[0].index)

    # -- the search ------------------------------------------------------------------------------

    def origin(self) -> Place | None:
        places: list[tuple[int, int, int, OpRecord | CallRecord, OpRecord | CallRecord]] = []
        places += [(a.index, 0, 0, a, b) for a, b in self.ops]
        places += [(a.last, 1, -a.number, a, b) for a, b in self.calls]
        for *_, a, b in sorted(places, key=lambda place: place[:3]):
            place = self._op(a, b) if isinstance(a, OpRecord) and isinstance(b, OpRecord) else None
            if isinstance(a, CallRecord) and isinstance(b, CallRecord):
                place = self._call(a, b)
            if place is not None:
                return place
        return self._loss()

    def _op(self, a: OpRecord, b: OpRecord) -> Place | None:
        given = self.given(a.inputs, b.inputs, holding=a.module != "")
        self.compared += len(a.outputs)
        for mine, theirs in zip(a.outputs, b.outputs, strict=False):
            found = distance(mine.stats, theirs.stats) if mine.stats or theirs.stats else None
            if found is None or (not epsilon(mine.dtype, theirs.dtype) and given):
                continue  # an index or a mask of values that were rounded otherwise
            chosen = found.relative > 2 * epsilon(mine.dtype) + 8 * given and any(arguments(a, b))
            if chosen or self.unexplained(found, mine, theirs, given, a.inputs, a.op in ADDITIVE, 1):
                return Place("op", a, b, None, None, found, given)
            if given <= agreement(mine.dtype):
                self.largest = max(self.largest, min(found.relative, 1.0))
        return None

    def _call(self, a: CallRecord, b: CallRecord) -> Place | None:
        strange = self._strange(a, b)
        if strange is not None:
            return strange
        given = self.given(a.inputs, b.inputs, holding=False)
        prefix = f"{a.module}."
        given = max([given, *(d for n, d in self.drift.items() if n.startswith(prefix) or a.parent is None)])
        self.compared += len(a.outputs) + len(a.state)
        count = max(1, a.last - a.first)
        for mine, theirs in zip(a.outputs, b.outputs, strict=False):
            found = distance(mine.stats, theirs.stats) if mine.stats or theirs.stats else None
            if found is None or (not epsilon(mine.dtype, theirs.dtype) and given):
                continue
            if self.unexplained(found, mine, theirs, given, a.inputs, True, count):
                near, same = self.values_b.nearest(mine)
                if near.relative <= dtype_floor(finer(mine.dtype, theirs.dtype)) and same is not None:
                    if same.producer is not None and b.first <= same.producer < b.last:
                        return Place("call", None, None, a, b, found, given)  # the partner goes on from there
                    continue  # the other run has it, in a module that was not taken for this one's partner
                return self._inside(a, b, mine, theirs, found, given)
        return self._state(a, b, given)

    def _strange(self, a: CallRecord, b: CallRecord) -> Place | None:
        """It is given something that the other run does not have at all, and that nothing before has explained."""
        for mine, theirs in zip(a.inputs, b.inputs, strict=False):
            if mine.producer is None or theirs.producer is None or mine.shape != theirs.shape or not mine.stats:
                continue
            if not epsilon(mine.dtype, theirs.dtype):
                continue
            found = distance(mine.stats, theirs.stats)
            limit = max(agreement(finer(mine.dtype, theirs.dtype)), AMPLIFICATION * max([0.0, *self.drift.values()]))
            if found.relative > limit and self.values_b.nearest(mine)[0].relative > limit:
                return self._walk(self.a.ops[mine.producer], self.b.ops[theirs.producer], found, 0.0, None, None)
        return None

    def _state(self, a: CallRecord, b: CallRecord, given: float) -> Place | None:
        theirs = {_attribute(tensor): tensor for tensor in b.state}
        for tensor in a.state:
            other = theirs.get(_attribute(tensor))
            if other is None or not tensor.stats or not tensor.name:
                continue
            found = distance(tensor.stats, other.stats)
            if self.unexplained(found, tensor, other, given, a.inputs, True, 2):
                return Place("state", None, None, a, b, found, given, tensor)
        return None

    def _loss(self) -> Place | None:
        """Also where no call and no op could be paired."""
        if self.a.loss is None or self.b.loss is None:
            return None
        a, b = self.a.ops[self.a.loss], self.b.ops[self.b.loss]
        if not a.outputs or not b.outputs:
            return None
        found = distance(a.outputs[0].stats, b.outputs[0].stats)
        self.compared += 1
        given = max([0.0, *self.drift.values()])
        if not self.unexplained(found, a.outputs[0], b.outputs[0], max(given, self.largest), (), True, len(self.a.ops)):
            return None
        return self._walk(a, b, found, given, None, None)

    # -- inside a call ---------------------------------------------------------------------------

    def _inside(
        self, a: CallRecord, b: CallRecord, mine: TensorFact, theirs: TensorFact, found: Distance, given: float
    ) -> Place:
        if mine.producer is None or theirs.producer is None or not a.first <= mine.producer < a.last:
            return Place("call", None, None, a, b, found, given)
        return self._walk(self.a.ops[mine.producer], self.b.ops[theirs.producer], found, given, a, b)

    def _walk(
        self, a: OpRecord, b: OpRecord, found: Distance, given: float, call: CallRecord | None, other: CallRecord | None
    ) -> Place:
        dtype = a.outputs[0].dtype if a.outputs else "float32"
        good = max(4 * epsilon(dtype), min(10 * dtype_floor(dtype), found.relative / 10), 3 * given)
        mine = _frontier(self.a, a, self.values_b, good)
        theirs = _frontier(self.b, b, self.values_a, good)
        names = [op.op for op in theirs]
        op = next((op for op in mine if op.op in names), mine[0] if mine else a)
        other_op = next((one for one in theirs if one.op == op.op), theirs[0] if theirs else b)
        apart = found
        if op.outputs and other_op.outputs and other_op.op == op.op:
            direct = distance(op.outputs[0].stats, other_op.outputs[0].stats)
            apart = direct if direct is not APART else found
        return Place("op", op, other_op, call, other, apart, given)

    # -- what rounding explains ------------------------------------------------------------------

    def given(self, mine: Sequence[TensorFact], theirs: Sequence[TensorFact], *, holding: bool) -> float:
        """How far the inputs are apart. What a module holds beside parameters and buffers is its own affair."""
        worst = 0.0
        for k, fact in enumerate(mine):
            if not fact.stats:
                continue
            found = APART
            if len(mine) == len(theirs):
                found = distance(fact.stats, theirs[k].stats)
            if found.relative > 1e-3:
                nearest = self.values_b.nearest(fact)[0]
                if nearest.relative < found.relative and len(mine) != len(theirs):
                    found = nearest
            if holding and fact.producer is None and not fact.name and fact.id not in self.batch:
                continue
            worst = max(worst, found.relative)
        return worst

    @property
    def batch(self) -> frozenset[int]:
        """Tensors of A that come from outside of the step, not from inside of a module."""
        if not hasattr(self, "_batch"):
            self._batch = frozenset(fact.id for fact in batch_of(self.a))
        return self._batch

    def unexplained(
        self,
        found: Distance,
        mine: TensorFact,
        theirs: TensorFact,
        given: float,
        inputs: Iterable[TensorFact],
        additive: bool,
        ops: int,
    ) -> bool:
        dtype = finer(mine.dtype, theirs.dtype)
        if given > agreement(dtype) or found.relative == 0:
            return False
        held = [fact for fact in inputs if fact.stats]
        length = max([1.0, *(float(fact.shape[-1]) if fact.shape else 1.0 for fact in held)])
        if mine.stats and held:
            length = max(length, max(fact.stats["count"] for fact in held) / max(1.0, mine.stats["count"]))
        if not mine.stats or not theirs.stats or found.relative == float("inf"):
            return True
        size = max(mine.stats["norm"], theirs.stats["norm"])
        allowed = (floor(dtype, length, ops) + AMPLIFICATION * given) * size
        if additive and held:
            most = max(fact.stats["norm"] / max(1.0, fact.stats["count"]) ** 0.5 for fact in held)
            allowed += (dtype_floor(dtype) + 3 * given) * most * max(1.0, mine.stats["count"]) ** 0.5
        return found.absolute > allowed or any(
            mine.stats[name] != theirs.stats[name] for name in ("nan", "pos_inf", "neg_inf")
        )


def finer(dtype: str, other: str) -> str:
    """A run that rounds more than the other one does differ from it."""
    return min((dtype, other), key=lambda name: epsilon(name) or 1.0)


def agreement(dtype: str) -> float:
    """Inputs that differ by more do not agree."""
    return min(0.05, 1000 * epsilon(dtype) or 1e-4)


def batch_of(trace: Trace) -> list[TensorFact]:
    """What comes from outside of the step: given to modules that no other one calls, or to ops outside of modules."""
    found: dict[int, TensorFact] = {}
    for call in sorted(trace.calls, key=lambda call: call.number):
        if call.parent is None:
            for fact in call.inputs:
                if fact.producer is None and not fact.name:
                    found.setdefault(fact.id, fact)
    for op in trace.ops:
        if op.module == "" or not trace.calls:
            for fact in op.inputs:
                if fact.producer is None and not fact.name:
                    found.setdefault(fact.id, fact)
    return list(found.values())


def _attribute(tensor: TensorFact) -> str:
    return tensor.name.rpartition(".")[2]


def _own_ops(trace: Trace) -> dict[int | None, list[OpRecord]]:
    """By the innermost call that they ran in."""
    owner: list[int | None] = [None] * len(trace.ops)
    for call in sorted(trace.calls, key=lambda call: call.number):  # inner calls begin later, and overwrite
        for k in range(call.first, min(call.last, len(owner))):
            owner[k] = call.number
    found: dict[int | None, list[OpRecord]] = {}
    for op, number in zip(trace.ops, owner, strict=True):
        found.setdefault(number, []).append(op)
    return found


def _of_gradients(trace: Trace) -> set[int]:
    """Ops that compute with gradients (clipping): they are no part of the forward pass."""
    found: set[int] = set()
    for op in trace.ops:
        if any(fact.name.endswith(":grad") or fact.producer in found for fact in op.inputs):
            found.add(op.index)
    return found


def _frontier(trace: Trace, start: OpRecord, others: Values, good: float) -> list[OpRecord]:
    """Ops that `start` depends on, whose outputs the other run does not have though it has all their inputs."""
    found: dict[int, OpRecord] = {}
    waiting, seen = [start.index], {start.index}
    while waiting:
        op = trace.ops[waiting.pop()]
        bad = [
            fact.producer
            for fact in op.inputs
            if fact.producer is not None and fact.producer < op.index and others.nearest(fact)[0].relative > good
        ]
        if not bad:
            found[op.index] = op
        for producer in bad:
            if producer not in seen:
                seen.add(producer)
                waiting.append(producer)
    ordered = [found[index] for index in sorted(found)]
    # What only lays out or makes something is seldom to blame: two programs may do that in different ways.
    return [op for op in ordered if op.inputs and op.op not in _LAYOUT] or ordered
