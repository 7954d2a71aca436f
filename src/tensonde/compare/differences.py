"""How far every pair of tensors of one step is apart: the verdict names the first difference, this shows how it spreads.

What rounding explains is `rounding`. Behind a tensor that differs nothing is explained by its inputs any more: there, a
tensor is `different` as soon as it is farther apart than rounding alone would put it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from tensonde.compare import training
from tensonde.compare.distance import AMPLIFICATION, APART, SAME, Distance, Stats, distance, dtype_floor, epsilon
from tensonde.compare.forward import ADDITIVE, StepPair, agreement, finer
from tensonde.compare.judge import Outcome
from tensonde.compare.side import Side
from tensonde.compare.verdict import Divergence
from tensonde.model.moment import Phase
from tensonde.model.trace import CallRecord, OpRecord, TensorFact, WeightRecord

_LIKE = 0.05
"""An op of the same kind behind a difference whose value is so near is taken for the partner."""
Status = Literal["equal", "rounding", "different", "origin", "unmatched"]


@dataclass(frozen=True, slots=True)
class Difference:
    """`a` and `b` are addresses; one of them is None where the other run has no such tensor."""

    a: str | None
    b: str | None
    phase: str
    status: Status
    found: Distance | None = None


@dataclass(frozen=True, slots=True)
class Spread:
    """All differences of `step`, in the order of execution of A."""

    step: int
    rows: list[Difference]


def spread(a: Side, b: Side, outcome: Outcome) -> Spread:
    """Of the step in which the runs part, or of the first one where that was not traced. The runs must be comparable."""
    common = sorted(set(a.traces) & set(b.traces))
    first = outcome.verdict.first
    step = first.step if first is not None and first.step in common else common[0]
    one, other = a.traces[step], b.traces[step]
    drift = training.drift(one, other, outcome.pairing) if step != common[0] else {}
    pair = StepPair(one, other, outcome.pairing, drift)
    forward = _Forward(pair)
    rows = [*_values(pair, drift), *forward.rows()]
    rows += _backward(pair, forward)
    rows += _optimizer(pair, forward.rounding)
    return Spread(step, _with_origin(rows, first))


def _with_origin(rows: list[Difference], first: Divergence | None) -> list[Difference]:
    if first is None:
        return rows
    known = {name: first.evidence.get(name) for name in ("rel_l2", "max_abs", "cosine")}
    figures = {name: float(value) if isinstance(value, int | float) else math.nan for name, value in known.items()}
    found = Distance(figures["rel_l2"], math.nan, figures["cosine"], figures["max_abs"], True)
    at = next((k for k, row in enumerate(rows) if row.a == first.site and row.phase == first.phase), None)
    if at is None:
        at = next((k for k, row in enumerate(rows) if row.status == "different"), len(rows))
    else:
        found = rows.pop(at).found or found
        # Where a module is named, what it does inside comes first, and is not what to look at first.
        inside = (f"{first.module}/", f"{first.module}.")
        while at > 0 and rows[at - 1].status == "different" and (rows[at - 1].a or "").startswith(inside):
            at -= 1
    rows.insert(at, Difference(first.site, first.other_site, first.phase, "origin", found))
    alone = Difference(None, first.other_site, first.phase, "unmatched")
    return [row for row in rows if row != alone]


def _status(found: Distance, *, differs: bool) -> Status:
    return "different" if differs else "equal" if found.relative == 0 else "rounding"


def _values(pair: StepPair, drift: dict[str, float]) -> Iterator[Difference]:
    """Parameters when the step begins. In later steps what earlier ones have done to them is not to blame on this one."""
    for mine, theirs in training.pairs(pair.a, pair.b, pair.pairing):
        if mine.before and theirs.before:
            found = distance(mine.before, theirs.before)
            limit = agreement(finer(mine.dtype, theirs.dtype)) if drift else 8 * epsilon(mine.dtype, theirs.dtype)
            differs = found.relative > limit
            yield Difference(
                f"{mine.name}:value", f"{theirs.name}:value", "forward", _status(found, differs=differs), found
            )


class _Forward:
    def __init__(self, pair: StepPair) -> None:
        self.pair = pair
        self.partners = {mine.index: theirs for mine, theirs in pair.ops}
        self.rounding = 0.0
        """The largest relative difference that is rounding."""
        self.parted: set[int] = set()
        """Ops of A whose outputs differ, and those behind them."""

    def rows(self) -> Iterator[Difference]:
        pair = self.pair
        places: list[tuple[int, int, int, OpRecord | CallRecord, OpRecord | CallRecord | None]] = []
        places += [(op.index, 0, 0, op, self.partners.get(op.index)) for op in pair.a.ops if op.phase != Phase.BACKWARD]
        places += [(mine.last - 1, 1, -mine.number, mine, theirs) for mine, theirs in pair.calls]
        for *_, mine, theirs in sorted(places, key=lambda place: place[:3]):
            if isinstance(mine, CallRecord) and isinstance(theirs, CallRecord):
                yield from self._call(mine, theirs)
            elif isinstance(mine, OpRecord):
                yield from self._op(mine, theirs if isinstance(theirs, OpRecord) else None)
        taken = {op.index for op in self.partners.values()}
        for op in pair.b.ops:
            if op.index not in taken and op.phase != Phase.BACKWARD and op.outputs:
                yield Difference(None, f"{op.site}:out", "forward", "unmatched")

    def _op(self, mine: OpRecord, theirs: OpRecord | None) -> Iterator[Difference]:
        if theirs is None:
            yield from self._elsewhere(mine)
            return
        given = self.pair.given(mine.inputs, theirs.inputs, holding=mine.module != "")
        additive = mine.op in ADDITIVE
        compared = self._compared(mine.outputs, theirs.outputs, mine.inputs, given, additive=additive, ops=1)
        if compared is None:
            return
        found, status = compared
        if status == "different":
            self.parted.add(mine.index)
        yield Difference(f"{mine.site}:out", f"{theirs.site}:out", "forward", status, found)

    def _elsewhere(self, mine: OpRecord) -> Iterator[Difference]:
        """An op without a partner: the other run may have its value by other ops. Behind a difference, by the same op."""
        if not mine.outputs or not mine.outputs[0].stats:
            return
        near, same = self.pair.values_b.nearest(mine.outputs[0])
        theirs = self.pair.b.ops[same.producer] if same is not None and same.producer is not None else None
        unit = dtype_floor(mine.outputs[0].dtype)
        parted = any(fact.producer in self.parted for fact in mine.inputs)
        near_enough = _LIKE if parted and theirs is not None and theirs.op == mine.op else 10 * unit
        if parted:
            self.parted.add(mine.index)
        if theirs is None or near.relative > near_enough:
            yield Difference(f"{mine.site}:out", None, "forward", "unmatched")
            return
        self.partners[mine.index] = theirs
        status = _status(near, differs=parted and near.relative > unit)
        yield Difference(f"{mine.site}:out", f"{theirs.site}:out", "forward", status, near)

    def _call(self, mine: CallRecord, theirs: CallRecord) -> Iterator[Difference]:
        prefix = f"{mine.module}."
        drift = (d for name, d in self.pair.drift.items() if name.startswith(prefix) or mine.parent is None)
        given = max([self.pair.given(mine.inputs, theirs.inputs, holding=False), *drift])
        count = max(1, mine.last - mine.first)
        compared = self._compared(mine.outputs, theirs.outputs, mine.inputs, given, additive=True, ops=count)
        if compared is not None:
            found, status = compared
            yield Difference(f"{mine.module}:out", f"{theirs.module}:out", "forward", status, found)

    def _compared(
        self,
        mine: Sequence[TensorFact],
        theirs: Sequence[TensorFact],
        inputs: Sequence[TensorFact],
        given: float,
        *,
        additive: bool,
        ops: int,
    ) -> tuple[Distance, Status] | None:
        """The output that is farthest apart; None where none has statistics."""
        worst: tuple[Distance, Status] | None = None
        parted = any(fact.producer in self.parted for fact in inputs)
        for one, other in zip(mine, theirs, strict=False):
            if not one.stats and not other.stats:
                continue
            found = distance(one.stats, other.stats)
            loose = 0.0 if parted or given > agreement(finer(one.dtype, other.dtype)) else given
            if epsilon(one.dtype, other.dtype):
                differs = self.pair.unexplained(found, one, other, loose, inputs, additive, ops)
            else:
                differs = (
                    found.relative > 0 and loose == 0
                )  # an index of values that were rounded otherwise may be another
            if not differs and found.relative < 1e-3:
                self.rounding = max(self.rounding, found.relative)
            if worst is None or differs or found.relative > worst[0].relative:
                worst = found, _status(found, differs=differs)
            if differs:
                break
        return worst


def _backward(pair: StepPair, forward: _Forward) -> Iterator[Difference]:
    """From the loss back; the gradients of parameters come after those of all ops."""
    noise = forward.rounding
    ops = [(op, other) for op in reversed(pair.a.ops) if (other := forward.partners.get(op.index)) is not None]
    weights = training.pairs(pair.a, pair.b, pair.pairing)
    largest = max(
        [0.0, *(op.gradient.get("norm", 0.0) for op, _ in ops), *(w.raw.get("norm", 0.0) for w, _ in weights)]
    )

    def differs(mine: Stats, theirs: Stats, found: Distance, unit: float) -> bool:
        """A gradient that is nothing beside the others may be rounding, whatever it is."""
        if found is APART:
            return (mine or theirs).get("norm", 0.0) > 64 * unit * largest
        if forward.parted:
            return found.relative > 8 * unit and found.absolute > unit * largest
        return found.relative > 80 * unit + AMPLIFICATION * noise and found.absolute > 64 * unit * largest

    for op, other in ops:
        if op.gradient or other.gradient:
            found = _apart(op.gradient, other.gradient)
            unit = epsilon(op.outputs[0].dtype) if op.outputs else 0.0
            status = _status(found, differs=differs(op.gradient, other.gradient, found, unit))
            yield Difference(f"{op.site}:grad", f"{other.site}:grad", "backward", status, found)
    bad = {part.name for part in training.gradients(pair.a, pair.b, pair.pairing, "raw", noise)}
    for mine, theirs in weights:
        if mine.raw or theirs.raw:
            found = _apart(mine.raw, theirs.raw)
            apart = forward.parted and differs(mine.raw, theirs.raw, found, epsilon(mine.dtype, theirs.dtype))
            yield _weight(mine, theirs, "grad", "backward", found, differs=mine.name in bad or bool(apart))


def _apart(a: Stats, b: Stats) -> Distance:
    """A gradient that was never seen has no digest; of a few only the norm is known."""
    if "count" not in a and "count" not in b:
        return SAME
    return distance(a, b) if "count" in a and "count" in b else APART


def _optimizer(pair: StepPair, noise: float) -> Iterator[Difference]:
    """Only what differs though what the backward pass gave agrees."""
    weights = {mine.name: (mine, theirs) for mine, theirs in training.pairs(pair.a, pair.b, pair.pairing)}
    raw = {part.name for part in training.gradients(pair.a, pair.b, pair.pairing, "raw", noise)}
    for part in training.gradients(pair.a, pair.b, pair.pairing, "gradient", noise):
        if part.name not in raw:
            yield _weight(*weights[part.name], "grad", "optimizer", part.found, differs=True)
    for part in training.updates(pair.a, pair.b, pair.pairing, {}):
        yield _weight(*weights[part.name], "update", "optimizer", part.found, differs=True)


def _weight(
    mine: WeightRecord, theirs: WeightRecord, role: str, phase: str, found: Distance, *, differs: bool
) -> Difference:
    return Difference(f"{mine.name}:{role}", f"{theirs.name}:{role}", phase, _status(found, differs=differs), found)
