"""From two runs to a verdict: data, initial values, forward, backward, optimizer, in this order, step by step."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tensonde.compare import backward, data, dialect, layout, training, uncompiled
from tensonde.compare.causes import cause
from tensonde.compare.choices import arguments
from tensonde.compare.forward import Place, StepPair
from tensonde.compare.losses import compare_losses, jump, rate_change
from tensonde.compare.pairing import Pairing, pair
from tensonde.compare.settings import differing, of_program, ordered, without_echoes
from tensonde.compare.side import Side
from tensonde.compare.training import Part
from tensonde.compare.verdict import Divergence, Setting, Verdict
from tensonde.compare.wiring import wiring
from tensonde.model.randomness import RANDOM_OPS
from tensonde.model.site import Address, SourceLine
from tensonde.model.trace import CallRecord, OpRecord, Trace
from tensonde.program.lines import from_json
from tensonde.store.damage import understanding

_LEAST = 0.2
"""Of the elements of all parameters, a smaller share in common means that these are two different things."""


@dataclass(frozen=True)
class Outcome:
    """The verdict, and what a second look may want to know."""

    verdict: Verdict
    pairing: Pairing
    drawn: bool = False
    """Initial values differ as two draws from one distribution do, and in no other way."""
    late: int | None = None
    """The runs part in this step, which was not traced."""


def judge(a: Side, b: Side, chosen: Mapping[str, str] | None = None) -> Outcome:
    """Raises RecordingError where what one of them recorded makes no sense."""
    with understanding(f"what {a.label} or {b.label} recorded"):
        if not dialect.is_foreign(a, b):
            return _judged(a, b, chosen)
        mine, theirs = dialect.common(a, b)
        return _in_own_words(_judged(mine, theirs, chosen), mine, theirs)


def _in_own_words(outcome: Outcome, a: Side, b: Side) -> Outcome:
    """Parameters by the names that they have in either program, and why ports differ."""

    def own(side: Side, site: str) -> str:
        name, colon, role = site.rpartition(":")
        return f"{side.native.get(name, name)}{colon}{role}"

    verdict, pairing = outcome.verdict, outcome.pairing
    if verdict.first is not None:
        first = verdict.first
        kind = a.modules.get(first.module, {}).get("type", "")
        evidence = {**first.evidence, **({"type": kind} if kind else {})}
        first = replace(first, site=own(a, first.site), other_site=own(b, first.other_site), evidence=evidence)
        verdict = replace(verdict, first=first)
        verdict = replace(verdict, cause=cause(verdict))
    weights = {a.native.get(mine, mine): b.native.get(theirs, theirs) for mine, theirs in pairing.weights.items()}
    turned = tuple(b.native.get(name, name) for name in pairing.transposed)
    return replace(outcome, verdict=verdict, pairing=replace(pairing, weights=weights, transposed=turned))


def _judged(a: Side, b: Side, chosen: Mapping[str, str] | None) -> Outcome:
    pairing = pair(a, b, chosen)
    if uncompiled.one_is_compiled(a, b) and set(a.losses) & set(b.losses):
        return _without_ops(a, b, pairing)
    problem = _incomparable(a, b, pairing)
    if not problem:
        a, b = layout.by_steps(a, b, pairing)
    if problem:
        return Outcome(Verdict("incomparable", notes=(problem,), labels=(a.label, b.label)), pairing)
    try:
        steps, first, drawn, notes = _steps(a, b, pairing)
    except layout.Unclear as unclear:
        return Outcome(Verdict("incomparable", notes=(str(unclear),), labels=(a.label, b.label)), pairing)
    late = None
    if first is None:
        first, late = _late(a, b, pairing, max(steps))
    settings = differing(a, b, pairing, steps)
    if first is not None:
        first = skipped(first, a, b, pairing)
        first = with_lines(at_module(first, a, b, pairing, settings), a, b)
        place = [
            setting
            for setting in _place_settings(first, steps.get(first.step))
            if f"{first.module}.{setting.what.rpartition('.')[2]}" not in {other.what for other in settings}
        ]
        settings = [*place, *(setting for setting in settings if setting.what not in {s.what for s in place})]
    verdict = Verdict(
        "equivalent" if first is None else "divergent",
        "none" if first is None else first.judgement,
        first,
        ordered(without_echoes(settings), first),
        compare_losses(a, b),
        pairing.unmatched_a,
        pairing.unmatched_b,
        {
            "sites": sum(len(p.a.calls) + len(p.a.ops) for p in steps.values()),
            "compared": sum(p.compared for p in steps.values()),
            "steps": sorted(steps),
            "modules": [len(pairing.modules), len(a.modules), len(b.modules)],
            "largest_rounding": max([0.0, *(p.largest for p in steps.values())]),
        },
        {mine: theirs for mine, theirs in pairing.modules.items() if mine != theirs},
        tuple(notes),
        (a.label, b.label),
    )
    return Outcome(verdict, pairing, drawn, late)


def _without_ops(a: Side, b: Side, pairing: Pairing) -> Outcome:
    first, count = uncompiled.compared(a, b, pairing)
    verdict = Verdict(
        "equivalent" if first is None else "divergent",
        "none" if first is None else first.judgement,
        first,
        ordered(of_program(a, b), first),
        compare_losses(a, b),
        coverage={"sites": count, "compared": count},
        notes=(uncompiled.note(a, b),),
        labels=(a.label, b.label),
    )
    return Outcome(verdict, pairing)


def _incomparable(a: Side, b: Side, pairing: Pairing) -> str:
    if not set(a.traces) & set(b.traces):
        which = " and ".join(side.label for side in (a, b) if not side.traces)
        if not which:
            return (
                f"{a.label} and {b.label} have no traced step in common; record both with `tensonde run`, from step 0."
            )
        verb = "have" if " and " in which else "has"
        return f"{which} {verb} no step that was traced op by op; record it with `tensonde run` (and a budget other than 0)."
    sizes = {name: math.prod(fact.get("shape", ())) for name, fact in a.parameters.items()}
    whole = min(sum(sizes.values()), sum(math.prod(fact.get("shape", ())) for fact in b.parameters.values()))
    if whole:
        if sum(sizes.get(name, 0) for name in pairing.weights) >= _LEAST * whole:
            return ""
    elif len(pairing.modules) >= _LEAST * min(len(a.modules), len(b.modules)):
        return ""
    return (
        f"{a.label} and {b.label} have nothing in common: of {len(a.parameters)} and {len(b.parameters)} parameters "
        f"{len(pairing.weights)} have the same shape; name pairs with --map."
    )


def _steps(a: Side, b: Side, pairing: Pairing) -> tuple[dict[int, StepPair], Divergence | None, bool, list[str]]:
    found: dict[int, StepPair] = {}
    noise: dict[str, float] = {}
    drawn = False
    notes: list[str] = []
    common = sorted(set(a.traces) & set(b.traces))
    for step in common:
        one, other = a.traces[step], b.traces[step]
        drift = training.drift(one, other, pairing) if step != common[0] else {}
        current = found[step] = StepPair(one, other, pairing, drift)
        cut = layout.layout_of(one, other, pairing)
        if cut is None:
            first = data.batches(current, step)
        else:
            first = layout.judged(current, cut, step, a, b)
            notes = [*notes, *([] if cut.sentence() in notes else [cut.sentence()])]
        if step == common[0] and step == 0:
            parts = training.initial(one, other, pairing)
            drawn = bool(parts) and all(training.only_drawn(part) for part in parts)
            if first is not None and parts:
                notes.append(f"{len(parts)} parameters begin with other values, too, such as {parts[0].name}.")
            if parts and (first is None or (cut is not None and first.judgement == "forward")):
                first = initial_divergence(parts, drawn)
            first = first or data.buffers(current)
        first = first or (_forward(current, step) if cut is None else None)
        if first is not None:
            return found, layout.certain(first, current, cut), drawn, notes
        spread = max([0.0, current.largest if current.largest < 1e-3 else 0.0, *drift.values()])
        spread += cut.noise if cut is not None else 0.0
        raw = training.gradients(one, other, pairing, "raw", spread)
        if raw:
            first = backward.told(current, step, raw, spread) if cut is None else layout.accumulated(raw, cut, step)
            return found, layout.certain(first, current, cut), drawn, notes
        if cut is not None:
            current.compared += len(training.pairs(one, other, pairing))
            current.largest = max([0.0, *training.update_noise(one, other, pairing).values()])
        ready = training.gradients(one, other, pairing, "gradient", spread)
        if ready:
            return found, _between(ready, step), drawn, notes
        moved = training.updates(one, other, pairing, noise, dialect.epsilon_of_adam(a, b))
        if moved:
            return found, _optimizer(moved, step, len(pairing.weights)), drawn, notes
        for name, value in training.update_noise(one, other, pairing).items():
            noise[name] = max(value, noise.get(name, 0.0))
    return found, None, drawn, notes


def initial_divergence(parts: list[Part], drawn: bool) -> Divergence:
    worst = parts[0]
    how = (
        "as two draws from one distribution do: the random numbers differ, not the initialisation"
        if drawn
        else f"{worst.name} has std {worst.a['std']:.4g} here and {worst.b['std']:.4g} there, "
        f"mean {worst.a['mean']:.3g} and {worst.b['mean']:.3g}"
    )
    why = f"{len(parts)} parameters differ before step 0, the first is {worst.name}: {how}."
    return Divergence(
        "init", f"{worst.name}:value", f"{worst.other}:value", 0, "forward", why,
        {**worst.found.evidence(), "std": [worst.a["std"], worst.b["std"]], "parameters": len(parts)},
        module=worst.name.rpartition(".")[0], random=drawn,
    )  # fmt: skip


def _forward(pair: StepPair, step: int) -> Divergence | None:
    place = pair.origin()
    if place is None:
        return None
    evidence: dict[str, Any] = {**place.found.evidence(), "inputs_rel_l2": place.given}
    if place.kind == "state" and place.call is not None and place.other_call is not None and place.tensor is not None:
        attribute = place.tensor.name.rpartition(".")[2]
        why = (
            f"Inputs and outputs of {place.call.module} ({place.call.type}) agree in step {step}, "
            f"its buffer {attribute} does not after the call: what it gives in evaluation will differ."
        )
        return Divergence(
            "forward", f"{place.tensor.name}:value", f"{place.other_call.module}.{attribute}:value", step, "forward",
            why, evidence, module=place.call.module,
        )  # fmt: skip
    if place.op is None or place.other_op is None:
        call, other = place.call, place.other_call
        assert call is not None
        assert other is not None
        why = f"The inputs of {call.module} ({call.type}) agree in step {step}, its output does not."
        last = [_last_op(pair.a, call), _last_op(pair.b, other)]
        if last[0] is not None and last[1] is not None:
            why += f" A ends with {last[0].site}, B with {last[1].site}."
        return Divergence(
            "forward", f"{call.module}:out", f"{other.module}:out", step, "forward", why, evidence,
            last[0].source if last[0] is not None else None, last[1].source if last[1] is not None else None, call.module,
        )  # fmt: skip
    return _op(pair, place, step, evidence)


def _last_op(trace: Trace, call: CallRecord) -> OpRecord | None:
    made = [fact.producer for fact in call.outputs if fact.producer is not None]
    return trace.ops[made[0]] if made else None


def _op(pair: StepPair, place: Place, step: int, evidence: dict[str, Any]) -> Divergence:
    op, other = place.op, place.other_op
    assert op is not None
    assert other is not None
    outside = op.module == "" and not op.inputs
    evidence |= wiring(pair, op, other)
    if op.op == other.op and op.outputs and other.outputs and op.outputs[0].dtype != other.outputs[0].dtype:
        evidence["dtypes"] = [op.outputs[0].dtype, other.outputs[0].dtype]
    where = f"in {op.module} ({op.module_type})" if op.module else "outside of all modules"
    if outside:
        why = f"{op.op} {where} makes other values in step {step}: data."
    elif op.op == other.op:
        why = f"The inputs of {op.op} {where} agree in step {step}, its output does not."
    elif op.outputs and pair.values_b.nearest(op.outputs[0])[0].relative < 1e-5:
        why = f"The output of {op.op} {where} agrees in step {step}, but the other run goes on to {other.op} it."
    elif other.outputs and pair.values_a.nearest(other.outputs[0])[0].relative < 1e-5:
        why = f"The other run stops at the output of {other.op}, this one goes on to {op.op} it ({where}, step {step})."
    else:
        why = f"Where the runs part {where}, one computes {op.op} and the other {other.op} of the same values (step {step})."
    random = op.op in RANDOM_OPS and other.op == op.op and not list(arguments(op, other))
    if random:
        why += " It draws random numbers, and its settings are the same: the draws differ, unless the mask is to blame."
    return Divergence(
        "data" if outside else "forward", f"{op.site}:out", f"{other.site}:out", step, "data" if outside else "forward",
        why, evidence, op.source, other.source, op.module, random=random,
    )  # fmt: skip


def skipped(first: Divergence, a: Side, b: Side, pairing: Pairing) -> Divergence:
    """The module that A has and does not call, where B calls it: that is the one to name, not the next one."""
    theirs = Address.of(first.other_site).module
    mine = next((name for name, other in pairing.modules.items() if other == theirs), None)
    trace = a.traces.get(first.step)
    if first.judgement != "forward" or mine is None or mine == first.module or trace is None:
        return first
    if any(call.module == mine for call in trace.calls) or "/" not in first.other_site:
        return first
    why = f"B calls {theirs} ({b.modules[theirs].get('type')}) before {first.site} in step {first.step}, A does not call {mine}."
    return replace(first, site=f"{mine}:out", other_site=f"{theirs}:out", why=why, module=mine)


def at_module(first: Divergence, a: Side, b: Side, pairing: Pairing, settings: list[Setting]) -> Divergence:
    """The module in place of its op, where it is the framework's: the user cannot change what is inside it. Where one of its
    settings differs, the line that made it is the one to change."""
    mine, theirs = a.modules.get(first.module), b.modules.get(pairing.modules.get(first.module, ""))
    if first.judgement != "forward" or mine is None or theirs is None:
        return first
    if not (mine.get("library") and theirs.get("library")):
        return first
    partner = pairing.modules[first.module]
    site = f"{first.module}:out" if "/" in first.site else first.site
    other = f"{partner}:out" if first.other_site.startswith(f"{partner}/") else first.other_site
    source, other_source = first.source, first.other_source
    if any(setting.what.startswith(f"{first.module}.") for setting in settings) or source is None:
        source, other_source = _made(mine) or source, _made(theirs) or other_source
    return replace(first, site=site, other_site=other, source=source, other_source=other_source)


def with_lines(first: Divergence, a: Side, b: Side) -> Divergence:
    """Where there is no op to point at: the lines that make the optimizer, clip, load the data or fill the parameter."""
    if first.source is not None:
        return first
    names = (Address.of(first.site).name, Address.of(first.other_site).name)
    found: list[SourceLine | None] = []
    for side, name in zip((a, b), names, strict=True):
        facts = side.facts
        places: list[Mapping[str, Any]] = []
        key = "made"
        if first.judgement == "optimizer":
            places = facts.get("optimizers") or []
            clips = facts.get("clipping") or {}
            if first.site.endswith(":grad") and clips.get("line"):
                places, key = [clips], "line"
        elif first.judgement == "data":
            places = facts.get("loaders") or []
        elif first.judgement == "init":
            places, key = [side.parameters.get(name) or {}], "filled"
            if places[0].get(key) is None:
                key = "made"
        found.append(from_json(places[0].get(key)) if places else None)
    return replace(first, source=found[0], other_source=first.other_source or found[1])


def _made(module: Mapping[str, Any]) -> SourceLine | None:
    return from_json(module.get("made"))


def _between(parts: list[Part], step: int) -> Divergence:
    worst = max(parts, key=lambda part: part.found.relative)
    ratio = worst.b["norm"] / worst.a["norm"] if worst.a.get("norm") and worst.b else 0.0
    why = (
        f"The backward pass of step {step} gives the same gradients in both runs, but the optimizer is not given the same: "
        f"{len(parts)} gradients were changed in between (clipped, scaled or added to)"
        + (f", {worst.name} by a factor of {ratio:.4g} more in the second run." if ratio else ".")
    )
    return Divergence(
        "optimizer", f"{parts[0].name}:grad", f"{parts[0].other}:grad", step, "optimizer", why,
        {**worst.found.evidence(), "parameters": len(parts)}, module="optimizer",
    )  # fmt: skip


def _optimizer(parts: list[Part], step: int, count: int) -> Divergence:
    worst = max(parts, key=lambda part: part.found.absolute)
    extent = "all" if len(parts) == count else f"{len(parts)} of {count}"
    still = [part.name for part in parts if not part.a["norm"] or not part.b["norm"]]
    why = (
        f"Loss and gradients of step {step} agree, the optimizer's updates do not ({extent} parameters"
        + (f"; {', '.join(still[:3])} moves in one run only" if still else "")
        + ")."
    )
    ratio = training.common_ratio(parts)
    if ratio is not None:
        why += f" Those of B are {ratio:.4g} times as large throughout."
    return Divergence(
        "optimizer", f"{worst.name}:update", f"{worst.other}:update", step, "optimizer", why,
        {
            **worst.found.evidence(),
            "update_norm": [worst.a["norm"], worst.b["norm"]],
            **({"ratio": ratio} if ratio is not None else {}),
            "parameters": len(parts),
        },
        module="optimizer",
    )  # fmt: skip


def _late(a: Side, b: Side, pairing: Pairing, traced: int) -> tuple[Divergence | None, int | None]:
    """What the curves tell of the steps that were not traced."""
    change, sudden = rate_change(a, b), jump(a, b, pairing)
    name = next(iter(pairing.weights), "")
    if change is not None and (sudden is None or sudden >= change[0]):
        step, group, mine, theirs = change
        why = f"Up to step {step} the runs agree; step {step} is made with another learning rate, {mine:.6g} and {theirs:.6g}."
        site = f"{name}:update"
        return Divergence(
            "optimizer", site, f"{pairing.weights.get(name, name)}:update", step, "optimizer", why,
            {"lr": [mine, theirs], "group": int(group)}, module="optimizer",
        ), None  # fmt: skip
    if sudden is not None and sudden > traced:
        why = f"The runs agree up to step {sudden - 1} and part in step {sudden}, which was not traced."
        return Divergence(
            "forward", "loss:value", "loss:value", sudden, "forward", why,
            {"loss": [a.losses[sudden], b.losses[sudden]]}, role="consequence",
        ), sudden  # fmt: skip
    return None, None


def _place_settings(first: Divergence, pair: StepPair | None) -> list[Setting]:
    """Arguments of the two ops where the runs part, also where the ops around them are not the same."""
    if pair is None or "/" not in first.site:
        return []
    site, other = Address.of(first.site).name, Address.of(first.other_site).name
    mine = next((op for op in pair.a.ops if op.site == site), None)
    theirs = next((op for op in pair.b.ops if op.site == other), None)
    if mine is None or theirs is None or mine.op != theirs.op:
        return []
    return list(arguments(mine, theirs))
