"""Gradients that arrive as exact zeros: an op on the way has no slope, for this batch and every other."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from tensonde.diagnose.analysis.flow import ancestors, made_by, parameters_behind
from tensonde.diagnose.case import Case
from tensonde.diagnose.rule import rule
from tensonde.diagnose.told import gradient_rows, some
from tensonde.model.finding import Finding
from tensonde.model.ops import Trait, ops
from tensonde.model.site import SourceLine
from tensonde.model.trace import OpRecord, Trace

_FLAT = ops(Trait.FLAT)
_RECTIFIERS = ops(Trait.FLAT_SIDE | Trait.CLAMPS)
_SHRINKERS = ops(Trait.TIMES | Trait.DROPOUT)
STEPS = 8
"""So many steps must be known, all of them with zeros."""


@dataclass(frozen=True, slots=True)
class Block:
    """`op` passes no gradient on; `kind` is "flat" (no slope anywhere), "off" (every value on its flat side) or
    "zero" (multiplied by zeros)."""

    op: OpRecord
    kind: str
    behind: frozenset[str]


def zero_gradients(case: Case) -> list[str]:
    """Trained parameters that got a gradient in every known step, and never one that is not 0."""
    found = []
    for name, fact in case.facts.parameters.items():
        if fact.optimizers and fact.requires_grad:
            rows = gradient_rows(case, name)
            if len(rows) >= STEPS and all(row["absmax"] == 0 for row in rows):
                found.append(name)
    return found


def block(trace: Trace | None, names: list[str]) -> Block | None:
    """Of the ops of the first step that pass no gradient on: the one with most of these parameters behind it; of
    equals the first, which the others follow from."""
    wanted = set(names)
    best: Block | None = None
    for op in trace.ops if trace is not None else ():
        kind = _kind(op)
        if trace is None or not kind or not op.outputs or not op.outputs[0].requires_grad:
            continue
        behind = frozenset(parameters_behind(trace, [fact for fact in op.inputs if fact.requires_grad]) & wanted)
        if behind and (best is None or len(behind) > len(best.behind)):
            best = Block(op, kind, behind)
    return best


def _kind(op: OpRecord) -> str:
    name = op.op.rstrip("_")
    given = next((fact for fact in op.inputs if fact.requires_grad), None)
    if given is None or not op.outputs:
        return ""
    if name in _FLAT:
        return "flat"
    out = op.outputs[0].stats
    if name in _RECTIFIERS and out.get("count") and out.get("min") == out.get("max") and out["count"] > 1:
        return "off"
    if name in _SHRINKERS and out.get("count", 0) > 1 and out.get("zero") == out.get("count"):
        rest = [fact for fact in op.inputs if fact is not given]
        if name == "dropout" or any(fact.stats.get("absmax") == 0 and not fact.requires_grad for fact in rest):
            return "zero"
    return ""


@rule("gradient-all-zero", severity="error", phase="backward", unless=("float16-without-scaling",))
def all_zero(case: Case) -> list[Finding]:
    """Gradients arrive at weights but are exactly zero in every step from the first on, while the loss is not: an op
    between them and the loss passes no gradient.

    Rounding and sign have no slope anywhere. A ReLU or a clamp has none where every value lies on its flat side, for
    every sample: the units are dead from the start. The first step's trace shows which op it is; without one, the
    finding names the module before which the gradient ends. Zero-initialized branches are not reported: they open
    after a step or two.
    """
    losses = [value for _, value in case.series("loss")]
    if case.steps < STEPS or not losses or not all(map(isfinite, losses)):
        return []
    if max(map(abs, losses[-5:])) < 1e-7:
        return []
    zero = zero_gradients(case)
    if not any(len(case.facts.parameters[name].shape) >= 2 for name in zero):
        return []
    trained = [n for n, f in case.facts.parameters.items() if f.optimizers and f.requires_grad]
    found = block(case.first, zero)
    if found is not None:
        return [_blocked(case, found, zero, trained)]
    return [_ends(case, zero, trained)] if len(zero) >= 0.9 * len(trained) else []


def _blocked(case: Case, found: Block, zero: list[str], trained: list[str]) -> Finding:
    op = found.op
    name = op.op.rstrip("_")
    fact = case.module(op.module)
    where = f" in {op.module} ({op.module_type})" if op.module else ""
    behind = [n for n in trained if n in found.behind]
    off = found.kind == "off"
    source, filled = (_start(case, found) if off else None), None
    if source is not None:
        filled = str(source)
    return case.finding(
        (
            f"{name}{where} gives the same value for every sample and passes no gradient: {some(behind)} never change"
            if off
            else f"{name}{where} passes no gradient: {some(behind)} never change"
        ),
        {
            "flat": f"{name} has slope 0 everywhere: train on the value before it, and use {name} for predictions only "
            "(or a straight-through estimator).",
            "off": "Start it on its active side: smaller or zero biases before it, normalized inputs; or use an activation with a slope on both sides (LeakyReLU, GELU, Softplus).",
            "zero": "It is multiplied by zeros only: find out where they come from.",
        }[found.kind],
        site=f"{op.module}:out" if fact.library else f"{op.site}:out",
        op=op.op,
        source=source or (fact.made if fact.library else op.source),
        evidence={
            "parameters": behind[:20],
            "zero_gradients": len(zero),
            "of": len(trained),
            "steps": case.steps,
            "output": op.outputs[0].stats.get("max") if off else None,
            **({"initialised_at": filled} if filled else {}),
        },
        confidence=0.95,
    )


def _start(case: Case, found: Block) -> SourceLine | None:
    """Where the layer right before it was given its first values, if the program did so itself."""
    trace = case.first
    given = next((fact for fact in found.op.inputs if fact.requires_grad), None)
    layer = made_by(trace, given) if trace is not None and given is not None else None
    names = [fact.name for fact in layer.inputs if fact.name] if layer is not None else []
    known = [case.facts.parameters[name] for name in reversed(names) if name in case.facts.parameters]
    return next((fact.filled for fact in known if fact.filled), None)


def _ends(case: Case, zero: list[str], trained: list[str]) -> Finding:
    op = _cut(case.first)
    if op is not None:
        return case.finding(
            f"{op.op} passes no gradient, and the loss is computed from it alone: nothing is trained",
            f"Train on the value before {op.op}, and use {op.op} for predictions only.",
            at=op,
            evidence={"parameters": len(zero), "of": len(trained), "steps": case.steps},
            confidence=0.95,
        )
    if case.facts.leaf_loss is not None:
        return case.finding(
            "The loss is made from plain numbers and depends on no parameter: nothing is trained",
            "Keep the graph from the model's output to the loss: no .asnumpy(), .item() or new tensor on the way.",
            site="loss:value",
            source=case.facts.leaf_loss,
            evidence={"parameters": len(zero), "of": len(trained), "steps": case.steps, "loss_has_no_history": True},
            confidence=0.95,
        )
    module, share = _last_alive(case)
    fact = case.module(module or "")
    return case.finding(
        (
            f"{module} ({fact.type}) gives 0 for every sample and passes no gradient: nothing is trained"
            if module and share == 1.0
            else f"The gradient dies at {module}: all parameters get exactly zero"
            if module
            else "All gradients are exactly zero in every step: nothing is trained"
        ),
        (
            "Use an activation that passes gradients on both sides here (Softplus, LeakyReLU, none), or start it on its active side."
            if share == 1.0
            else "Look for an op there with no gradient: a dead ReLU, clamp, round, sign, a comparison."
        ),
        site=f"{module}:out" if module else None,
        source=fact.made,
        evidence={"parameters": len(zero), "of": len(trained), "zero_share_of_output": share, "steps": case.steps},
        confidence=0.93 if module else 0.8,
    )


def _cut(trace: Trace | None) -> OpRecord | None:
    """On the way to a loss that depends on no parameter: the last op that was given one that did."""
    if trace is None or trace.loss is None or any(fact.requires_grad for fact in trace.ops[trace.loss].outputs):
        return None
    way = ancestors(trace, trace.ops[trace.loss]) | {trace.loss}
    ends = [op for op in trace.ops if op.index in way and any(fact.requires_grad for fact in op.inputs)]
    return ends[-1] if ends else None


def _last_alive(case: Case) -> tuple[str | None, float | None]:
    """The module that gets a gradient and, going back, is the first before which there is none."""
    modules = case.facts.modules
    alive = []
    for name in modules:
        rows = case.digests(f"{name}:grad", ("step", "absmax"))
        if rows and any(row["absmax"] > 0 for row in rows):
            alive.append(name)
    leaves = [n for n in alive if not any(other.startswith(f"{n}.") for other in modules) and n not in ("model",)]
    last = next(iter(leaves or alive), None)
    if last is None:
        return None, None
    rows = case.digests(f"{last}:out", ("count", "zero"))
    return last, min((row["zero"] / row["count"] for row in rows if row["count"]), default=None)
