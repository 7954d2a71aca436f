"""Layers without a non-linearity between them, where one was meant to be."""

from __future__ import annotations

import ast

from tensonde.diagnose.analysis.flow import consumers, made_by
from tensonde.diagnose.case import Case
from tensonde.diagnose.rule import rule
from tensonde.diagnose.told import some
from tensonde.model.facts import ModuleFact
from tensonde.model.finding import Finding
from tensonde.model.ops import Trait, modules, ops
from tensonde.model.trace import OpRecord, Trace

_LAYERS = ops(Trait.AFFINE)
_PASSING = ops(Trait.PASSES | Trait.DROPS_UNITS | Trait.BATCH_NORM)
"""With batch norm: of each feature, it is a factor and a shift."""
_FUNCTIONS = ops(Trait.ACTIVATION)
_MODULES = modules(Trait.ACTIVATION)


@rule("no-activation-between-layers", severity="error", phase="forward")
def no_activation(case: Case) -> list[Finding]:
    """Two layers follow each other directly and together are one linear map, although the program has an activation
    for them: the module that calls the two holds one that is never called in the whole training, or it is called
    between them and its result is thrown away (`F.relu(x)` on a line of its own).

    Consecutive layers alone are no sign: low-rank pairs, projections and linear models are written this way on
    purpose. So the rule ignores a pair with a narrow middle, and a module without an unused activation of its own.
    """
    trace = case.first
    if trace is None or not case.steps:
        return []
    pairs = [(before, op) for op in trace.ops if (before := _layer_before(trace, op)) is not None]
    return _thrown_away(case, trace) or _never_called(case, pairs)


def _layer_before(trace: Trace, op: OpRecord) -> OpRecord | None:
    if op.op not in _LAYERS or not op.inputs or not _weight(op):
        return None
    before = made_by(trace, op.inputs[0], _PASSING)
    if before is None or before.op not in _LAYERS or not _weight(before) or before.module == op.module:
        return None
    wide_in, wide_out, middle = _weight(before)[1], _weight(op)[0], _weight(before)[0]
    return before if middle >= min(wide_in, wide_out) else None


def _weight(op: OpRecord) -> tuple[int, ...]:
    """The shape of a layer's weight, () where it is no parameter of its own."""
    known = [fact.shape for fact in op.inputs[1:] if fact.name and fact.requires_grad and len(fact.shape) >= 2]
    return known[0] if len(known) == 1 else ()


def _never_called(case: Case, pairs: list[tuple[OpRecord, OpRecord]]) -> list[Finding]:
    told = (case.rank.session.get("coverage") or {}).get("not_watched") or {}
    modules = case.facts.modules
    idle = [n for n, why in told.items() if why == "was never called" and case.module(n).type in _MODULES]
    for before, op in pairs:
        holder = _holder(modules, op.module)
        unused = [name for name in idle if _holder(modules, name) == holder == _holder(modules, before.module)]
        if unused and before.module and op.module:
            near = [one.module for pair in pairs for one in pair if _holder(modules, one.module) == holder]
            layers = list(dict.fromkeys(near))
            return [
                case.finding(
                    (
                        f"{some(layers, 4)} follow each other without a non-linearity: {some(unused, 2)} "
                        f"({modules[unused[0]].type}) is never called"
                    ),
                    f"Call {unused[0]} on the output of each layer except the last: without it, consecutive layers are one linear map.",
                    site=f"{before.module}:out",
                    op=before.op,
                    source=before.source,
                    evidence={"layers": layers[:8], "never_called": unused[:8], "next_layer_at": str(op.source or "")},
                    confidence=0.9,
                )
            ]
    return []


def _holder(modules: dict[str, ModuleFact], name: str) -> str:
    """The module that calls another: a list of modules is never called, and calls none."""
    holder = name.rpartition(".")[0]
    while holder in modules and modules[holder].type in ("ModuleList", "ModuleDict"):
        holder = holder.rpartition(".")[0]
    return holder


def _thrown_away(case: Case, trace: Trace) -> list[Finding]:
    for op in trace.ops:
        if op.op not in _FUNCTIONS or not op.inputs or not op.outputs or op.source is None:
            continue
        given, out = op.inputs[0], op.outputs[0]
        if given.id == out.id or not given.requires_grad or not _statement(op.source.code) or consumers(trace, out):
            continue
        layer = made_by(trace, given, _PASSING)
        users = [user for user in consumers(trace, given) if user.index > op.index and user.op in _LAYERS]
        if layer is not None and layer.op in _LAYERS and users:
            return [
                case.finding(
                    f"The output of {op.op} is thrown away: {users[0].module or users[0].op} gets the value from before",
                    f"Keep it: x = {op.source.code}",
                    at=op,
                    evidence={"layer_before": layer.module, "layer_after": users[0].module},
                    confidence=0.95,
                )
            ]
    return []


def _statement(code: str) -> bool:
    """A call whose value nobody takes."""
    try:
        body = ast.parse(code.strip()).body
    except SyntaxError:
        return False
    return len(body) == 1 and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Call)
