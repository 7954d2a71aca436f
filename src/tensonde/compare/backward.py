"""Where gradients part: the op whose output gradient agrees in both runs and whose input gradient does not."""

from __future__ import annotations

from tensonde.compare.distance import AMPLIFICATION, APART, Distance, distance, epsilon
from tensonde.compare.forward import StepPair
from tensonde.compare.training import Part
from tensonde.compare.verdict import Divergence
from tensonde.model.trace import OpRecord, Trace


def told(pair: StepPair, step: int, parts: list[Part], noise: float) -> Divergence:
    """`parts`: the parameters whose gradients differ."""
    frozen = [part for part in parts if part.frozen]
    found = _first(pair, noise) if len(frozen) < len(parts) else None
    worst = max(parts, key=lambda part: part.found.relative)
    names = ", ".join(part.name for part in parts[:3]) + (f" and {len(parts) - 3} more" if len(parts) > 3 else "")
    if found is None:
        part = parts[0]
        missing = " (only one run trains them)" if frozen else " (only one has any)" if part.found is APART else ""
        why = f"Loss and inputs of step {step} agree, the gradients of {names} do not{missing}."
        return Divergence(
            "backward", f"{part.name}:grad", f"{part.other}:grad", step, "backward", why,
            {**worst.found.evidence(), "parameters": len(parts)}, module=part.name.rpartition(".")[0],
        )  # fmt: skip
    op, other, apart, role = found
    what = "the gradient of its output" if role == "grad" else "the gradient that its backward pass gives"
    why = f"Loss and inputs of step {step} agree, but {what} at {op.site} does not; so differ those of {names}."
    if op.op == "detach" or other.op == "detach":
        why += " One run detaches here, the other does not."
    return Divergence(
        "backward", f"{op.site}:{role}", f"{other.site}:{role}", step, "backward", why,
        {**apart.evidence(), "parameters": len(parts)}, op.source, other.source, op.module,
    )  # fmt: skip


def _first(pair: StepPair, noise: float) -> tuple[OpRecord, OpRecord, Distance, str] | None:
    partners = _partners(pair)
    largest = max([0.0, *(op.gradient.get("norm", 0.0) for op in pair.a.ops)])
    bad: dict[int, Distance] = {}
    for op in pair.a.ops:
        other = partners.get(op.index)
        if other is None or (not op.gradient and not other.gradient):
            continue
        unit = epsilon(op.outputs[0].dtype) if op.outputs else 0.0
        one, theirs = _digest(op), _digest(other)
        if not one or not theirs:
            if (one or theirs).get("norm", 0.0) > 64 * unit * largest:
                bad[op.index] = APART
            continue
        apart = distance(one, theirs)
        if apart.relative > 80 * unit + AMPLIFICATION * noise and apart.absolute > 64 * unit * largest:
            bad[op.index] = apart
    if not bad:
        return None
    last = max(bad)
    after = _consumers(pair.a, last)
    if pair.a.loss == last or not after:
        return pair.a.ops[last], partners[last], bad[last], "grad"
    names = [op.op for op in _consumers(pair.b, partners[last].index)]
    odd = next((op for op in after if op.op not in names), None) or next(
        (op for op in after if op.op == "detach"), None
    )
    consumer = odd or after[-1]
    return consumer, partners.get(consumer.index, partners[last]), bad[last], "grad_in"


def _digest(op: OpRecord) -> dict[str, float]:
    return dict(op.gradient) if "count" in op.gradient else {}


def _partners(pair: StepPair) -> dict[int, OpRecord]:
    found = {mine.index: theirs for mine, theirs in pair.ops}
    for op in pair.a.ops:
        if op.index not in found and op.outputs:
            apart, fact = pair.values_b.nearest(op.outputs[0])
            if fact is not None and fact.producer is not None and apart.relative < 1e-4:
                found[op.index] = pair.b.ops[fact.producer]
    return found


def _consumers(trace: Trace, producer: int) -> list[OpRecord]:
    return [op for op in trace.ops if op.index > producer and any(fact.producer == producer for fact in op.inputs)]
