"""Whether both runs are given the same: batches, and the buffers that their modules begin with."""

from __future__ import annotations

from tensonde.compare.distance import AMPLIFICATION, APART, Distance, distance, epsilon
from tensonde.compare.forward import StepPair, batch_of
from tensonde.compare.verdict import Divergence
from tensonde.model.site import SourceLine
from tensonde.model.trace import TensorFact, Trace


def batches(pair: StepPair, step: int) -> Divergence | None:
    """The first tensor from outside that the other run is not given."""
    theirs = batch_of(pair.b)
    noise = max([0.0, *pair.drift.values()])
    for fact in batch_of(pair.a):
        found, other = APART, None
        for candidate in theirs:
            apart = distance(fact.stats, candidate.stats)
            if apart.relative < found.relative:
                found, other = apart, candidate
        if other is None:
            other = next((one for one in theirs if one.dtype == fact.dtype and one.shape[1:] == fact.shape[1:]), None)
            other = other or next((one for one in theirs if _turned(fact, one)), None)
            if other is None:
                continue  # a constant of one of them; if it matters, its op differs
        if found.relative > 80 * epsilon(fact.dtype, other.dtype) + AMPLIFICATION * noise:
            return _told(pair, step, fact, other, found)
    return None


def unlike(pair: StepPair) -> Divergence | None:
    """The first tensor from outside that is not even of the same kind: another shape, range or spread."""
    theirs = batch_of(pair.b)
    for fact in batch_of(pair.a):
        alike = [one for one in theirs if one.shape == fact.shape and one.dtype == fact.dtype]
        if not alike:
            turned = next((one for one in theirs if _turned(fact, one)), None)
            if turned is not None:
                return _told(pair, pair.a.step, fact, turned, APART)
        elif not any(_same_kind(fact, one) for one in alike):
            return _told(pair, pair.a.step, fact, alike[0], distance(fact.stats, alike[0].stats))
    return None


def _turned(one: TensorFact, other: TensorFact) -> bool:
    """The same sizes in another order."""
    different = one.shape != other.shape and sorted(one.shape) == sorted(other.shape)
    return different and one.dtype == other.dtype and len(one.shape) > 2


def _same_kind(a: TensorFact, b: TensorFact) -> bool:
    """Other samples of one set of data, as far as mean and spread tell. Samples are few: what is far off counts."""
    one, other = a.stats, b.stats
    if not one or not other:
        return True
    count = max(1.0, float(a.shape[0] if a.shape else 1))
    spread = max(one["std"], other["std"])
    if spread == 0:
        return one["mean"] == other["mean"] or count == 1
    near = abs(one["mean"] - other["mean"]) <= 6 * spread / count**0.5
    wide = min(one["std"], other["std"]) >= spread / (1 + 6 / count**0.5)
    return bool(near and wide)


def _told(pair: StepPair, step: int, fact: TensorFact, other: TensorFact, found: Distance) -> Divergence:
    site, source = _use(pair.a, fact)
    other_site, other_source = _use(pair.b, other)
    if found is APART:
        how = f"has shape {list(fact.shape)} here and {list(other.shape)} there"
    elif _same_content(fact, other):
        how = "has the same values in another order"
    else:
        how = "has other values"
    why = f"The input {site} of step {step} {how}: data, before the model has computed anything."
    return Divergence(
        "data", site, other_site, step, "data", why,
        {**found.evidence(), "shape": list(fact.shape), "other_shape": list(other.shape)},
        source, other_source,
    )  # fmt: skip


def _same_content(a: TensorFact, b: TensorFact) -> bool:
    return all(
        abs(a.stats[name] - b.stats[name]) <= 1e-9 * max(1.0, abs(a.stats[name]))
        for name in ("min", "max", "norm", "mean", "std")
    )


def _use(trace: Trace, fact: TensorFact) -> tuple[str, SourceLine | None]:
    """Where it is first used."""
    for call in sorted(trace.calls, key=lambda call: call.number):
        for k, given in enumerate(call.inputs):
            if given.id == fact.id:
                index = f"[{k}]" if len(call.inputs) > 1 else ""
                return f"{call.module}:in{index}", None
    for op in trace.ops:
        for k, given in enumerate(op.inputs):
            if given.id == fact.id:
                return f"{op.site}:in[{k}]", op.source
    return "batch:in", None


def buffers(pair: StepPair) -> Divergence | None:
    """The first buffer that does not begin with the values of its partner."""
    theirs: dict[str, TensorFact] = {}
    for op in pair.b.ops:
        for fact in op.inputs:
            if fact.name and ":" not in fact.name:
                theirs.setdefault(fact.name, fact)
    seen = {weight.name for weight in pair.a.weights}
    for op in pair.a.ops:
        for fact in op.inputs:
            if not fact.name or ":" in fact.name or fact.name in seen:
                continue
            seen.add(fact.name)
            owner, _, attribute = fact.name.rpartition(".")
            partner = pair.pairing.module(owner)
            other = theirs.get(f"{partner}.{attribute}" if partner else attribute) if partner is not None else None
            if other is None:
                continue
            found = distance(fact.stats, other.stats)
            if found.relative > 80 * epsilon(fact.dtype, other.dtype):
                why = f"The buffer {fact.name} begins with other values."
                site = f"{fact.name}:value"
                return Divergence(
                    "init", site, f"{other.name}:value", pair.a.step, "forward", why, found.evidence(),
                    op.source, None, owner,
                )  # fmt: skip
    return None
