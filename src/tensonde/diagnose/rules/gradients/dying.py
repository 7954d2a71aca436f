"""Units that die on the way: after some step they are off for every sample, and nothing behind them learns any more."""

from __future__ import annotations

from math import isfinite

from tensonde.diagnose.analysis.flow import parameters_behind
from tensonde.diagnose.case import Case
from tensonde.diagnose.rule import rule
from tensonde.diagnose.told import gradient_rows, some
from tensonde.model.finding import Finding
from tensonde.model.ops import Trait, modules, ops
from tensonde.model.site import SourceLine

_MODULES = modules(Trait.FLAT_SIDE)
_OPS = ops(Trait.FLAT_SIDE)
STEPS = 8
"""Steps in a row with gradients of 0, at least."""
SHARE = 0.25
"""Of the training, at its end, for which it must have been so."""


@rule("units-dead", severity="error", phase="forward", unless=("gradient-all-zero",))
def dead(case: Case) -> list[Finding]:
    """A ReLU gave 0 for every unit and sample whenever it was observed, while the loss is not 0: the layers before it
    cannot learn any more. Sparse is not dead: one active unit, once, is enough for silence.

    Modules are not observed in every step, but gradients are: if the gradients of all weights before a ReLU were
    nonzero and are exactly 0 from some step to the end, while weights after it still get some, its units are dead as
    well. Alive at first and dead later means that a step was too long, so the line is the optimizer's. Losses that
    end in a ReLU (hinge, triplet) have no weight after it.
    """
    losses = [value for _, value in case.series("loss")]
    if case.steps < 10 or not losses or not all(map(isfinite, losses)):
        return []  # a training that runs away kills units, too; `divergence` tells of that
    if abs(losses[-1]) < 1e-6:
        return []
    found = _seen_dead(case) or _without_gradient(case)
    if found is None:
        return []
    names, kind, since, source = found
    return [
        case.finding(
            f"All units of {some(names)} ({kind}) are dead from step {since} on",
            (
                "Lower the learning rate, or warm it up, and check the bias before it; LeakyReLU, GELU or a normalization before it keep units alive."
            ),
            step=since,
            site=f"{names[0]}:out",
            source=source,
            evidence={"zero_share": 1.0, "layers": names[:10]},
            confidence=0.88,
        )
    ]


Found = tuple[list[str], str, int, SourceLine | None]


def _optimizer_line(case: Case) -> SourceLine | None:
    active = case.stepping
    return active[0].made if len(active) == 1 else None


def _seen_dead(case: Case) -> Found | None:
    found = []
    for name, module in case.facts.modules.items():
        if module.type not in _MODULES:
            continue
        rows = case.digests(f"{name}:out", ("step", "count", "zero"))
        late = [row for row in rows if row["step"] >= case.steps / 2]
        zero = [row["zero"] == row["count"] for row in rows]
        since = len(zero) - zero[::-1].index(False) if False in zero else 0
        if late and len(rows) - since >= 3 and all(row["zero"] == row["count"] for row in late):
            found.append((name, module, rows[since]["step"] if since < len(rows) else 0))
    if not found:
        return None
    name, module, since = found[0]
    source = (_optimizer_line(case) if since else None) or module.made
    return [name for name, *_ in found], module.type, since, source


def _without_gradient(case: Case) -> Found | None:
    died: dict[str, int] = {}
    alive: set[str] = set()
    for name, fact in case.facts.parameters.items():
        if not fact.optimizers or not fact.requires_grad:
            continue
        rows = gradient_rows(case, name)
        last = max((k for k, row in enumerate(rows) if row["absmax"] != 0), default=-1)
        tail = rows[last + 1 :]
        if last >= 0 and len(tail) >= STEPS and tail[0]["step"] <= (1 - SHARE) * case.steps:
            died[name] = tail[0]["step"]
        elif last >= 0 and rows[last]["step"] >= 0.9 * case.steps:
            alive.add(name)
    trace = case.first
    best: tuple[int, Found] | None = None
    for op in trace.ops if trace is not None and died else ():
        if op.op not in _OPS or not op.outputs or not op.outputs[0].requires_grad or trace is None:
            continue
        behind = parameters_behind(trace, [fact for fact in op.inputs if fact.requires_grad])
        after = {fact.name for later in trace.ops[op.index + 1 :] for fact in later.inputs if fact.name} - behind
        known = behind & (died.keys() | alive)
        if known and known <= died.keys() and after & alive and (best is None or len(known) > best[0]):
            since = max(died[name] for name in known)
            found = ([op.module or op.site], op.op, since, _optimizer_line(case) or op.source)
            best = len(known), found
    return best[1] if best is not None else None
