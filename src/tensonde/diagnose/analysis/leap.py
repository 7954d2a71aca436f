"""Losses that leap far above all before them, and what tells whether a batch did it: values that are out of scale in the trace of
that step, and weights that were as calm as ever before it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import isfinite
from statistics import median
from typing import Any

from tensonde.diagnose.case import Case
from tensonde.model.finding import Finding
from tensonde.model.ops import Trait, ops
from tensonde.model.site import Kind, Role, SourceLine
from tensonde.model.trace import OpRecord, TensorFact, Trace
from tensonde.program.lines import from_json

_NORMS = ops(Trait.NORM)
EARLY, BEFORE = 3, 10
"""Losses before a leap: the few after which one of `TIMES` counts, and those after which any does."""
TIMES = 1e3
SOME = 20.0
"""Times the largest loss before it. The adapter traces such steps (`adapters/torch/leaps.py`)."""
ODD = 1e2
SOMEWHAT_ODD = 20.0
"""Times the largest value that the same op was given in ordinary steps. The lower one counts only after steady losses."""
MANY = 50
"""Losses that tell most about how steady they are."""
STEADY = 5.0
"""Times the median that the largest of the last losses may be."""
CALM = 2.0
"""Times that a weight may have grown in the steps before."""


@dataclass(frozen=True, slots=True)
class Leap:
    """`before` is the largest loss until then, `recent` the last ones."""

    step: int
    value: float
    before: float
    seen: int
    recent: tuple[float, ...]

    @property
    def times(self) -> float:
        return self.value / self.before

    def steady(self, count: int) -> bool:
        """Whether so many losses before it were all of one size."""
        last = self.recent[-count:]
        return len(last) == count and max(last) <= STEADY * median(last)


@dataclass(frozen=True, slots=True)
class OddValues:
    """`op` was given `fact`, whose largest value is `usual` in other steps. `maker` made it so out of ordinary values; None where
    it came from outside. `layer`: the op has weights, so that this is an input of the model and no target."""

    op: OpRecord
    fact: TensorFact
    usual: float
    maker: OpRecord | None
    layer: bool

    @property
    def size(self) -> float:
        return _size(self.fact)


def leaps(losses: Iterable[tuple[int, float]]) -> Iterator[Leap]:
    seen: list[float] = []
    most = 0.0
    for step, value in losses:
        size = abs(value)
        if not isfinite(size):
            continue
        if most > 0 and size > (SOME if len(seen) >= BEFORE else TIMES) * most and len(seen) >= EARLY:
            yield Leap(step, size, most, len(seen), tuple(seen[-MANY:]))
        most = max(most, size)
        seen.append(size)


def odd_values(case: Case, trace: Trace, leap: Leap | None = None) -> OddValues | None:
    """What an op of this step was given that is far out of the scale of other steps and depends on no weight."""
    usual = _usual(trace, case.stages)
    others = _usual(trace, case.traces)  # steps that were run again: all that there is of compiled code
    odd = SOMEWHAT_ODD if leap is not None and leap.steady(2 * BEFORE) else ODD
    for op in trace.ops:
        if not any(fact.requires_grad for fact in op.inputs):
            continue
        for k, fact in enumerate(op.inputs[:1] if op.op in _NORMS else op.inputs):  # the others are its own statistics
            known = usual.get((op.site, k)) or others.get((op.site, k), 0.0)
            if fact.requires_grad or fact.name or "float" not in fact.dtype or not known:
                continue
            if _size(fact) > odd * known:
                layer = any(given.name and given.requires_grad for given in op.inputs)
                return OddValues(op, fact, known, _maker(trace, fact, odd), layer)
    return None


def _usual(trace: Trace, others: Iterable[Trace]) -> dict[tuple[str, int], float]:
    """The largest value that each op was given in other steps."""
    found: dict[tuple[str, int], float] = {}
    for other in others:
        for op in other.ops if other.step != trace.step else ():
            for k, fact in enumerate(op.inputs):
                found[op.site, k] = max(_size(fact), found.get((op.site, k), 0.0))
    return found


def _maker(trace: Trace, fact: TensorFact, odd: float) -> OpRecord | None:
    """The op that made large values of ordinary ones, on the way back from `fact`."""
    for _ in range(64):
        if fact.producer is None:
            return None
        op = trace.ops[fact.producer]
        given = max(op.inputs, key=_size, default=None)
        if given is None or odd * _size(given) <= _size(fact):
            return op
        if given.producer is not None and given.producer >= op.index:
            return None
        fact = given
    return None


def _size(fact: TensorFact) -> float:
    size = fact.stats.get("absmax", 0.0)
    return size if isfinite(size) else 0.0


def traced(case: Case, step: int) -> Trace | None:
    """The trace of a step that was run again."""
    return next((trace for trace in case.traces if trace.step == step and trace.reason == "replay"), None)


def calm_before(case: Case, step: int) -> bool:
    """No weight had grown in the steps before, up to the very last: the loss of this step cannot come of them."""
    weights = [s for s in case.sites.values() if s.kind is Kind.PARAMETER and s.role is Role.VALUE and len(s.shape) > 1]
    names = [site.id for site in weights]
    rows = case.rank.digests(sites=names, steps=(max(step - 12, 0), step), columns=["site", "step", "norm"]).to_pylist()
    norms: dict[int, dict[int, float]] = {}
    for row in rows:
        norms.setdefault(row["site"], {})[row["step"]] = row["norm"]
    found = [
        (known[step - 1], [v for k, v in known.items() if k < step - 1])
        for known in norms.values()
        if step - 1 in known
    ]
    return bool(found) and all(earlier and last <= CALM * max(median(earlier), 1e-12) for last, earlier in found)


def batch_finding(case: Case, step: int, odd: OddValues, leap: Leap | None = None) -> Finding:
    """What is told of a batch that is out of scale."""
    source, site, evidence = _held(case, step, odd)
    shown = f"up to {odd.size:.3g}, where other steps have {odd.usual:.3g}"
    what = "batch" if odd.layer else "targets"
    return case.finding(
        f"The {what} of step {step} {'is' if odd.layer else 'are'} out of scale: {shown}"
        + (f"; the loss jumps from {leap.before:.3g} to {leap.value:.3g}" if leap else ""),
        (
            f"Look at the input of {odd.maker.op} here."
            if odd.maker
            else "Look at these samples where the dataset is built: a unit, a missing normalization, a placeholder for missing values."
        )
        + " A range check of each batch, or gradient clipping, keeps one batch from ruining the weights.",
        rule="batch-out-of-scale",
        severity="error",
        step=step,
        phase="data",
        site=site,
        op=(odd.maker or odd.op).op,
        source=source,
        evidence=evidence,
        confidence=0.9,
    )


def _held(case: Case, step: int, odd: OddValues) -> tuple[SourceLine | None, str, dict[str, Any]]:
    evidence: dict[str, Any] = {"absmax": odd.size, "usual_absmax": odd.usual, "used_by": odd.op.site}
    if odd.maker is not None:
        return odd.maker.source, f"{odd.maker.site}:out", {**evidence, "used_at": str(odd.op.source)}
    batch = next((e for e in reversed(case.events) if e.get("kind") == "batch" and e.get("step") == step), None)
    if batch is None:
        return odd.op.source, f"{odd.op.site}:in", evidence
    made = from_json(batch.get("source")) or next(
        (loader.made for loader in case.facts.loaders if loader.dataset == batch.get("dataset")), None
    )
    evidence |= {"dataset": batch.get("dataset", ""), "dataset_indices": list(batch.get("indices") or ())[:16]}
    return made or odd.op.source, "dataset:value", {**evidence, "used_at": str(odd.op.source)}
