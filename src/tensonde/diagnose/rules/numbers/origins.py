"""Where NaN and Inf come from: the op, the data, or the optimizer.

A trace of the failing step shows every op with what it took and gave. Walking back from the bad loss along bad values
leads to the first op that was given finite numbers (or a mask of -Inf that it could not cope with). Where the loss
is finite and a gradient is not, it is the op whose own derivative turned a finite gradient bad.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import isfinite
from typing import Any

from tensonde.diagnose.analysis.causes import Cause, backward_cause, forward_cause
from tensonde.diagnose.analysis.divergence import Divergence, diverged, optimizer_line
from tensonde.diagnose.analysis.explosion import Explosion, exploded
from tensonde.diagnose.analysis.factor import loss_factor
from tensonde.diagnose.analysis.leap import TIMES, Leap, batch_finding, calm_before, leaps, odd_values, traced
from tensonde.diagnose.analysis.own_optimizer import dividing_line
from tensonde.diagnose.analysis.path import (
    Origin,
    amplifier,
    backward_origin,
    bad,
    chain,
    count,
    forward_origin,
    inserted_at,
    spoilt_before,
)
from tensonde.diagnose.case import Case
from tensonde.diagnose.rule import rule
from tensonde.diagnose.told import backward_line
from tensonde.model.finding import Finding
from tensonde.model.ops import Trait, ops
from tensonde.model.site import Kind, Role, SourceLine
from tensonde.model.trace import OpRecord, TensorFact, Trace
from tensonde.program.lines import from_json
from tensonde.store.bundles import LEAP, TAKEN_OUT

LATER = 20
"""Good steps after a bad one that was left out, from which on it is taken for known."""
ENORMOUS = 1e9
"""No initialisation makes weights as large; memory that was never written may."""


@rule("nan-origin", severity="error", explains=("exception", "nonfinite", "watchpoint", "value-not-finite"))
def origins(case: Case) -> list[Finding]:
    """NaN or Inf reached the loss, a gradient or a weight. The finding names the op that made it, from the trace of
    that step.

    The origin is the first op on the way to the bad value that got finite numbers; infinities that a mask inserted do
    not count. If the loss leaves bad values out and a gradient meets them, their origin is found in the same way. Bad
    values that came in from outside are in the data (`nan-in-data`). If weights are not finite although their
    gradients are, the optimizer did it (`nan-in-optimizer`). If loss and weights had grown by orders of magnitude and
    only plain arithmetic overflowed, the training diverged (`divergence`), and the op is where that showed. If
    everything had been calm except the step before, in which the unclipped gradient of a weight that one pass applies
    many times was ten times the weight and SGD changed it by a tenth or more, the cause is that gradient
    (`exploding-gradients`), and the finding names the optimizer's step.

    If the script itself checked for such values, skipped the batch and trained on for many steps, it knows: a note,
    not an alarm.
    """
    harmed = _harmed_steps(case)
    survived = not harmed and not any(event.get("kind") == "exception" for event in case.events)
    leapt = {event.get("step") for event in case.events if event.get("trigger") == LEAP}
    evaluated = {event.get("step") for event in case.events if event.get("trigger") == TAKEN_OUT} - harmed
    data: list[Finding] = []
    for trace in case.traces:
        if trace.step in evaluated and _undefined_quotient(trace):
            continue
        if (trace.reason in ("first", "stage") or trace.step in leapt) and trace.step not in harmed:
            continue
        found = _in_trace(case, trace, survived=survived)
        if survived and _left_behind(case, trace.step):
            found = [replace(finding, severity="info") for finding in found]
        if found and trace.reason == "first" and found[0].rule == "nan-in-data":
            data = found  # or it was made before the first module was called: the next step tells
        elif found:
            return found if not data or found[0].rule == "nan-origin" else data
    return data or _without_trace(case, harmed)


def _undefined_quotient(trace: Trace) -> bool:
    """NaN is 0 / 0 outside of the model: a metric that is not defined, such as the precision of a class that is never predicted."""
    origin = forward_origin(trace, trace.loss) if trace.loss is not None else None
    if origin is None or origin.op.module or origin.op.op not in ops(Trait.DIVIDES):
        return False
    return all(fact.stats.get("zero", 0) > 0 for fact in origin.op.inputs) and not any(
        bad(f.stats) for f in origin.op.inputs
    )


def _left_behind(case: Case, step: int) -> bool:
    """The training went on after this step, with losses that are finite."""
    after = [value for k, value in case.series("loss") if k > step]
    return len(after) >= LATER and all(map(isfinite, after))


def _harmed_steps(case: Case) -> set[int]:
    """Steps in which the loss, a gradient or a weight was found to be bad."""
    steps = set()
    for hit in case.rank.hits:
        site = case.sites.get(hit.site)
        if (
            site is not None
            and site.kind in (Kind.LOSS, Kind.PARAMETER)
            and any(hit.actual.get(name, 0) > 0 for name in ("nan", "inf", "pos_inf", "neg_inf", "nonfinite"))
        ):
            steps.add(hit.moment.step)
    return steps


def _in_trace(case: Case, trace: Trace, *, survived: bool) -> list[Finding]:
    origin = forward_origin(trace, trace.loss) if trace.loss is not None else None
    if origin is None:
        op = backward_origin(trace)
        if op is None:
            return []
        before = spoilt_before(trace, op)
        if before is not None:
            return [_left_out(case, trace, before, op)]
        cause = backward_cause(op)
        return _with_divergence(case, trace, cause, _backward(case, trace, op, cause))
    if origin.outside is not None:
        if origin.outside.name and trace.reason == "first":
            return [_weight(case, trace, origin.op, origin.outside)]
        if origin.outside.name:
            return []  # a weight or buffer: it went bad before this step
        return [_data(case, trace, origin, origin.outside)]
    cause = forward_cause(origin)
    finding = _forward(case, trace, origin, cause, survived=survived)
    odd = odd_values(case, trace) if cause.growth or not cause.sure else None
    if odd is not None and odd.layer:
        return [batch_finding(case, trace.step, odd), replace(finding, caused_by=0)]
    if (cause.sure and not cause.growth) or diverged(case, trace.step) is not None:
        return _with_divergence(case, trace, cause, finding)
    larger = amplifier(trace, origin.op) if cause.growth else None
    enormous = _enormous_weight(larger or origin.op) if cause.growth and trace.reason == "first" else None
    if enormous is not None:
        return [_weight(case, trace, larger or origin.op, enormous), replace(finding, caused_by=0)]
    explosion = exploded(case, trace, larger if cause.growth else origin.op)
    found = [_explosion(case, explosion)] if explosion is not None else []
    found += [_amplified(case, trace, larger, origin.op)] if larger is not None else []
    found += [finding]
    return [replace(one, caused_by=0) if k else one for k, one in enumerate(found)]


def _left_out(case: Case, trace: Trace, origin: Origin, op: OpRecord) -> Finding:
    """Bad values that the loss leaves out, and that the backward of `op` meets all the same."""
    if origin.outside is not None:
        found = _data(case, trace, origin, origin.outside)
    else:
        found = _forward(case, trace, origin, forward_cause(origin), survived=False, last=op.index)
    return replace(
        found,
        title=f"{found.title}; the loss leaves it out, the gradient of {op.op}{_where(op)} does not",
        evidence={**found.evidence, "met_by_backward_of": f"{op.site} {op.source or ''}".strip()},
    )


def _with_divergence(case: Case, trace: Trace, cause: Cause, finding: Finding) -> list[Finding]:
    growth = diverged(case, trace.step)
    if growth is None or not (cause.growth or (growth.weights >= 100 and not cause.sure)):
        return [finding]
    return [_ran_away(case, growth), replace(finding, caused_by=0)]


def _where(op: OpRecord) -> str:
    if op.module_type and op.module and op.module_type.lower() != op.module:
        return f" in {op.module} ({op.module_type})"
    return f" in {op.module or op.module_type}" if op.module or op.module_type else ""


def _gives(stats: Mapping[str, float]) -> str:
    if count(stats, "nan"):
        return "NaN"
    return "-inf" if count(stats, "neg_inf") and not count(stats, "pos_inf") else "inf"


def _forward(
    case: Case, trace: Trace, origin: Origin, cause: Cause, *, survived: bool, last: int | None = None
) -> Finding:
    op = origin.op
    site, source = _parametrised(case, op)
    out = next((fact.stats for fact in op.outputs if bad(fact.stats)), {})
    evidence: dict[str, Any] = {**cause.evidence, **_out(out)}
    evidence |= _inputs(op, known=evidence)
    last = last if last is not None else trace.loss if trace.loss is not None else op.index
    evidence["chain"] = [f"{step.site} {step.source or ''}".strip() for step in chain(trace, op.index, last)]
    rows = _samples(out)
    if rows and "sample" not in evidence:
        evidence["samples"] = rows
    advice = cause.advice
    for mask in origin.masks:
        made = inserted_at(trace, mask)
        if made is not None and made.source is not None:
            evidence["mask"] = {"op": made.op, "source": str(made.source), "code": made.source.code}
            advice = f"The -inf comes from {made.op} at {made.source}. {advice}"
            break
    return case.finding(
        f"{cause.what}{_where(op)} gives {_gives(out)}",
        advice,
        severity="warning" if survived else "error",
        step=trace.step,
        phase="forward",
        site=f"{site}:out",
        op=op.op,
        source=source,
        evidence=evidence,
        confidence=_confidence(trace, cause),
    )


def _parametrised(case: Case, op: OpRecord) -> tuple[str, SourceLine | None]:
    """Site and line of an op. What torch computes a weight by (weight norm) is no module of the user's: it is the layer
    that is named, and the line that gave its weight the values that go wrong."""
    layer, found, _ = op.module.partition(".parametrizations.") if op.module else ("", "", "")
    if not found:
        return op.site, op.source
    facts = case.facts.parameters
    held = [facts[fact.name] for fact in op.inputs if fact.name in facts]
    filled = next((known.filled for known in held if known.filled), None)
    return layer, filled or case.module(layer).made or op.source


def _amplified(case: Case, trace: Trace, op: OpRecord, overflow: OpRecord) -> Finding:
    """Ordinary numbers became huge here; that they overflow later is only a matter of what is done with them."""
    given = max((fact.stats.get("absmax", 0.0) for fact in op.inputs), default=0.0)
    made = max((fact.stats.get("absmax", 0.0) for fact in op.outputs), default=0.0)
    return case.finding(
        f"{op.op} of up to {given:.4g}{_where(op)} gives {made:.3g}, which then overflows in {overflow.op}",
        (
            "Bound its input (clamp or tanh on a log-scale, an eps under a fraction), or stay in log space; find out why its argument has grown."
        ),
        step=trace.step,
        phase="forward",
        at=op,
        evidence={
            **_inputs(op, known={}),
            "in.absmax": given,
            "out.absmax": made,
            "overflows_in": f"{overflow.site} {overflow.source or ''}".strip(),
        },
        confidence=0.9 if trace.exact else 0.6,
    )


def _backward(case: Case, trace: Trace, op: OpRecord, cause: Cause) -> Finding:
    made = {name: op.gradient.get(f"in.{name}", 0.0) for name in ("nan", "pos_inf", "neg_inf")}
    evidence: dict[str, Any] = {**cause.evidence, "grad.absmax": op.gradient.get("absmax", 0.0)}
    evidence |= {f"grad_in.{name}": value for name, value in made.items() if value}
    evidence |= _inputs(op, known=evidence)
    rows = [int(op.gradient[key]) for key in sorted(op.gradient) if key.startswith("in.bad_row.")]
    if rows:
        evidence["samples"] = rows
    return case.finding(
        f"{cause.what}{_where(op)}: its gradient is {_gives(made)} although the loss is finite",
        cause.advice,
        step=trace.step,
        phase="backward",
        site=f"{op.site}:grad_in",
        op=op.op,
        source=op.source,
        evidence=evidence,
        confidence=_confidence(trace, cause),
    )


def _confidence(trace: Trace, cause: Cause) -> float:
    return (0.97 if cause.sure else 0.8) - (0.0 if trace.exact else 0.3)


def _out(stats: Mapping[str, float]) -> dict[str, float]:
    return {f"out.{name}": stats[name] for name in ("nan", "pos_inf", "neg_inf", "count") if stats.get(name)}


def _inputs(op: OpRecord, known: Mapping[str, Any]) -> dict[str, Any]:
    """Shapes and ranges of what the op was given."""
    found: dict[str, Any] = {}
    for k, fact in enumerate(op.inputs[:4]):
        label = fact.name or f"in[{k}]"
        found[label] = f"{list(fact.shape)} {fact.dtype} {_range(fact.stats)}".strip()
    return {key: value for key, value in found.items() if key not in known}


def _range(stats: Mapping[str, float]) -> str:
    if not stats or stats.get("min") is None or stats["min"] != stats["min"]:
        return ""
    return f"in [{stats['min']:.4g}, {stats['max']:.4g}]"


def _samples(stats: Mapping[str, float]) -> list[int]:
    rows = [int(stats[f"bad_row.{k}"]) for k in range(8) if f"bad_row.{k}" in stats]
    return rows if stats.get("bad_rows", 0) <= 8 else []


# -- data -------------------------------------------------------------------------------------------


def _data(case: Case, trace: Trace, origin: Origin, fact: TensorFact) -> Finding:
    """The bad values were there before any op ran on them."""
    op = origin.op
    rows = _samples(fact.stats)
    what = _gives(fact.stats)
    evidence: dict[str, Any] = {
        f"in.{name}": fact.stats[name] for name in ("nan", "pos_inf", "neg_inf") if fact.stats.get(name)
    }
    evidence |= {
        "shape": list(fact.shape),
        "first_used_by": op.site,
        "samples": rows or f"{fact.stats.get('bad_rows', 0):g} rows",
    }
    place = ""
    if rows and fact.shape:
        place = f": sample {rows[0]}" if len(rows) == 1 else f": samples {', '.join(map(str, rows))}"
        if len(fact.shape) > 1:
            inner = int(fact.stats.get("bad_at", 0))
            index = []
            for size in reversed(fact.shape):
                index.append(inner % max(size, 1))
                inner //= max(size, 1)
            position = list(reversed(index))[1:]
            evidence["feature"] = position[0] if len(position) == 1 else position
            place += f", feature {evidence['feature']}"
    elif len(fact.shape) == 2 and count(fact.stats, "nan", "pos_inf", "neg_inf") == fact.shape[0] > 1:
        evidence["feature"] = int(fact.stats.get("bad_at", 0)) % fact.shape[1]
        place = f": feature {evidence['feature']} of every sample"
    source, site = op.source, f"{op.site}:in"
    batch = next((e for e in reversed(case.events) if e.get("kind") == "batch" and e.get("step") == trace.step), None)
    if batch is not None and rows and batch.get("indices"):
        known = [batch["indices"][row] for row in rows if row < len(batch["indices"])]
        if known and fact.shape[0] == len(batch["indices"]):
            evidence["dataset"] = batch.get("dataset", "")
            evidence["dataset_indices"] = known
            place += f" (index {', '.join(map(str, known))} of {batch.get('dataset') or 'the dataset'})"
            if batch.get("attribute"):
                evidence["held_in"] = f"{batch.get('dataset')}.{batch['attribute']}"
            site = "dataset:value"
            given = from_json(batch.get("source"))
            if given:
                source = given
                evidence["used_at"] = str(op.source)
    elif batch is not None and not rows:  # all of it: what the loader is given is bad as a whole
        made = from_json(batch.get("source")) or next(
            (loader.made for loader in case.facts.loaders if loader.dataset == batch.get("dataset")), None
        )
        if made:
            source = made
            site = "dataset:value"
            evidence |= {"dataset": batch.get("dataset", ""), "used_at": str(op.source)}
    if batch is None:
        made = next((from_json(e["line"]) for e in case.events if _is_maker(e, trace, fact)), None)
        if made:
            source = made
            evidence["used_at"] = str(op.source)
    return case.finding(
        f"{what} in the data{place}, before any layer ran",
        (
            "Clean or drop these samples where the dataset is built (np.isfinite), or check each batch before the model sees it."
        ),
        rule="nan-in-data",
        step=trace.step,
        phase="data",
        site=site,
        op=op.op,
        source=source,
        evidence=evidence,
        confidence=0.97 if trace.exact else 0.7,
    )


def _is_maker(event: Mapping[str, Any], trace: Trace, fact: TensorFact) -> bool:
    told = event.get("kind") == "spoilt_outside" and event.get("step") == trace.step
    return told and event.get("tensor") == fact.id


def _enormous_weight(op: OpRecord) -> TensorFact | None:
    """The largest parameter that an op was given, if no initialisation makes one as large."""
    weights = [fact for fact in op.inputs if fact.name and fact.producer is None]
    most = max(weights, key=lambda fact: fact.stats.get("absmax", 0.0), default=None)
    return most if most is not None and most.stats.get("absmax", 0.0) > ENORMOUS else None


def _weight(case: Case, trace: Trace, op: OpRecord, fact: TensorFact) -> Finding:
    """A parameter or buffer was bad before it was first used."""
    held = _gives(fact.stats) if bad(fact.stats) else f"values up to {fact.stats['absmax']:.3g}"
    return case.finding(
        f"{fact.name} holds {held} from the start",
        "Initialize it: torch.empty, torch.Tensor(n) and to_empty() return uninitialized memory; a loaded checkpoint may also be bad.",
        rule="nan-in-weights",
        step=trace.step,
        phase="forward",
        site=f"{fact.name}:value",
        op=op.op,
        source=op.source,
        evidence={**_out(fact.stats), "shape": list(fact.shape), "first_used_by": op.site},
        confidence=0.9,
    )


# -- the optimizer ----------------------------------------------------------------------------------


def _ran_away(case: Case, growth: Divergence) -> Finding:
    """Losses and weights had grown: by the learning rate, or by one batch that threw the weights off."""
    found = [one for one in leaps(case.series("loss")) if one.times > TIMES and one.step <= growth.step + 1]
    leap = found[0] if found else None
    if leap is None or not calm_before(case, leap.step):
        return _divergence(case, growth)
    trace = traced(case, leap.step)
    odd = odd_values(case, trace) if trace is not None else None
    return batch_finding(case, leap.step, odd, leap) if odd is not None else _thrown(case, growth, leap)


def _thrown(case: Case, growth: Divergence, leap: Leap) -> Finding:
    """The loss leapt while the weights were as before, and no trace tells by what."""
    return case.finding(
        (
            f"The loss jumps from at most {leap.before:.3g} to {leap.value:.3g} at step {leap.step} while the weights hardly changed, and its gradients ruin them"
        ),
        "Look at the batch and the targets of this step; clip the gradients so that one batch cannot do this.",
        rule="divergence",
        step=leap.step,
        phase="forward",
        site="loss:value",
        source=backward_line(case),
        evidence=growth.evidence,
        confidence=0.7,
    )


def _divergence(case: Case, growth: Divergence) -> Finding:
    optimizer = growth.optimizer
    rate = (
        f" ({optimizer.type}, lr {growth.rate:g})"
        if optimizer and growth.rate is not None
        else f" (lr {growth.rate:g})"
        if growth.rate is not None
        else ""
    )
    factor = loss_factor(case, optimizer)
    if factor is not None:
        return case.finding(
            f"The training diverges: the loss is multiplied by {factor.by:g} before it is differentiated, which makes every step of "
            f"{optimizer.type if optimizer else 'the optimizer'} {factor.by:g} times longer",
            f"Divide the gradients by {factor.by:g} before the optimizer's step, as a loss scaler does, or leave the factor out.",
            at=factor.op,
            rule="divergence",
            step=growth.step,
            phase="optimizer",
            evidence={**growth.evidence, "factor": factor.by},
            confidence=0.9,
        )
    return case.finding(
        f"The training diverges: the learning rate is too large{rate}"
        + (f", raised from {change.before:g} at step {change.step}" if (change := growth.raised) else ""),
        (
            "Lower the learning rate by 10 to 1000 times, warm it up, or clip the gradients; the NaN is only the end of the growth."
        ),
        rule="divergence",
        step=growth.step,
        phase="optimizer",
        site=growth.site,
        source=growth.source,
        evidence=growth.evidence,
        confidence=0.9,
    )


def _explosion(case: Case, explosion: Explosion) -> Finding:
    return case.finding(
        (
            f"Gradients explode in {explosion.weight}: norm {explosion.gradient:.3g}, {explosion.times:.0f} times the weight's. "
            f"One step changes it by {explosion.change:.0%}, and the next pass overflows"
        ),
        (
            "Clip the gradients between backward() and step() (torch.nn.utils.clip_grad_norm_): a weight that is applied "
            "many times in a pass needs it. A gated layer (LSTM, GRU), shorter sequences or a smaller learning rate also help."
        ),
        rule="exploding-gradients",
        step=explosion.step,
        phase="optimizer",
        site=f"{explosion.weight}:grad",
        source=explosion.source,
        evidence=explosion.evidence,
        confidence=0.9,
    )


def _without_trace(case: Case, harmed: set[int]) -> list[Finding]:
    """What the digests alone can tell: a weight that went bad under finite gradients, or growth before the end."""
    if not harmed:
        return []
    first = min(harmed)
    growth = diverged(case, first)
    bad_weights = [
        hit
        for hit in case.rank.hits
        if hit.moment.step == first
        and (site := case.sites.get(hit.site)) is not None
        and site.kind is Kind.PARAMETER
        and site.role is Role.VALUE
    ]
    others = [hit for hit in case.rank.hits if hit.moment.step == first and hit not in bad_weights]
    unseen = any(event.get("kind") == "unseen" and event.get("step") == first for event in case.events)
    if bad_weights and not unseen and not any(_nonfinite(hit.actual) for hit in others):
        hit = bad_weights[0]
        name = hit.site.partition(":")[0]
        gradient = [row for row in case.digests(f"{name}:grad", ("step", "absmax", "nan")) if row["step"] == first]
        own, why = dividing_line(case, first=first == 0) if growth is None else (None, "")
        return [
            case.finding(
                f"The optimizer makes {name} non-finite although its gradient is finite",
                (
                    f"Look at the division here: {why}."
                    if own
                    else "Look at the learning rate, eps (0 divides by 0 in Adam), betas and the optimizer's "
                    "state; lower the learning rate or clip."
                ),
                rule="nan-in-optimizer",
                step=first,
                phase="optimizer",
                site=hit.site,
                source=own or optimizer_line(case),
                evidence={
                    "grad.absmax": gradient[0]["absmax"] if gradient else None,
                    **(growth.evidence if growth else {}),
                },
                confidence=0.8,
            )
        ]
    return [_ran_away(case, growth)] if growth is not None else []


def _nonfinite(actual: Mapping[str, float]) -> bool:
    return any(actual.get(name, 0) > 0 for name in ("nan", "inf", "pos_inf", "neg_inf", "nonfinite"))
