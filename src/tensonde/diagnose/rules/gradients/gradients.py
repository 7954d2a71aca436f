"""Gradients that do not arrive, and gradients that are thrown away or kept too long."""

from __future__ import annotations

from tensonde.diagnose.analysis.flow import ancestors, parameters_behind
from tensonde.diagnose.case import Case
from tensonde.diagnose.rule import rule
from tensonde.diagnose.told import backward_line, common, gradient_rows, some, where
from tensonde.model.facts import OptimizerFact, ParameterFact
from tensonde.model.finding import Finding
from tensonde.model.site import SourceLine
from tensonde.model.trace import OpRecord, Trace

SURE = 20
"""Steps: with so many, gradients that are there in half of them are not there by chance."""


def _without_gradient(case: Case) -> list[str]:
    """Parameters in an optimizer that was stepped, used in the forward pass, that never had a gradient."""
    stepped = {k for k, o in enumerate(case.facts.optimizers) if o.looked_at >= 2 and o.had_gradients}
    reached = set(case.facts.reached)
    alive = {case.facts.parameters[name].owner for name in reached if name in case.facts.parameters}
    found = []
    for name, fact in case.facts.parameters.items():
        if not fact.requires_grad or not stepped.intersection(fact.optimizers) or name in reached:
            continue
        if (
            fact.library and fact.owner in alive
        ):  # no cut: where a loss is of derivatives, a bias may have no part in it
            continue
        if _used(case, name, fact) and not gradient_rows(case, name):
            found.append(name)
    return found


def _used(case: Case, name: str, fact: ParameterFact) -> bool:
    """An op of the first step took it; where there is no trace, its module is torch's own and was called."""
    trace = case.first
    if trace is not None and any(given.name == name for op in trace.ops for given in op.inputs):
        return True
    called = f"{fact.owner}:out" in case.sites or f"{fact.owner}:out[0]" in case.sites
    return bool(fact.library) and called


@rule("no-gradient", severity="error", phase="backward")
def no_gradient(case: Case) -> list[Finding]:
    """A parameter is in an optimizer, is used in the forward pass, and never gets a gradient: the graph is cut behind
    it.

    The finding names the cut if the first step showed one that has these parameters behind it: `detach()`, `.data`, a
    block without gradients, reentrant checkpointing of inputs that need none, or an op on the way to the loss that
    returns indices or booleans (`argmax`, a comparison), which have no gradient; or nothing uses their result. Parts
    that were not called at all (experts without tokens) are not reported, nor is a bias of a layer that learns: a
    loss of derivatives (forces from an energy) does not depend on the last one. If nobody uses the output of a part
    of a library's model (BERT's pooler, with a loss on the last hidden state), that is not the program's mistake: it
    is information.
    """
    names = _without_gradient(case)
    if not names:
        return []
    facts = case.facts
    owners = list(dict.fromkeys(case.facts.parameters[name].owner for name in names))
    within = common(names)
    blocked = [(owner, facts.without_grad[owner]) for owner in owners if owner in facts.without_grad]
    cut = _cut(case.first, names)
    advice, source, why, kind = "Find where the graph is cut between these and the loss.", None, "", "cut"
    optimizer = facts.optimizers[case.facts.parameters[names[0]].optimizers[0]]
    site = f"{owners[0]}:out"
    if blocked:
        kind, source = blocked[0][1].kind, blocked[0][1].line
        if kind == "no_grad":
            why = " because it runs without gradients (no_grad)"
            advice = "Move it out of the no_grad block; if it is frozen on purpose, leave it out of the optimizer."
        else:
            why = ": reentrant checkpointing of inputs that do not require a gradient"
            advice = "Use checkpoint(..., use_reentrant=False), or make the inputs require a gradient."
    elif cut is not None and cut.outputs[0].dtype not in _FLOATS:
        kind, source = cut.op, cut.source
        why = (
            f": {kind}{' in ' + cut.module if cut.module else ''} gives {cut.outputs[0].dtype} values, without gradient"
        )
        advice = (
            f"Route a gradient around {kind}: a soft choice (softmax, gumbel_softmax), a straight-through estimator "
            "(z + (chosen - z).detach()) or a separate loss term."
        )
    elif cut is not None:
        kind, source = cut.op, cut.source
        called = ".data" if kind == "data" else f"{kind}()"
        why = f": {called}{' in ' + cut.module if cut.module else ''} cuts the graph"
        advice = f"Take {called} away from the path to the loss; detach only the copy that is kept or printed."
    elif (end := _dead_end(case.first, names)) is not None:
        kind, source = "unused", end.source
        why = f": nothing uses the output of {end.op}{where(end)}"
        advice = "Use it on the way to the loss (is another variable used instead?), or remove the layer."
    else:
        source = case.facts.parameters[names[0]].made or optimizer.made
    unused = not blocked and cut is None and all(_in_a_library(case, owner) for owner in owners)
    if unused:
        why = ": the loss does not use its output"
        advice = "If that is not intended, use its output; otherwise leave it out of the model or the optimizer."
    return [
        case.finding(
            f"{within or some(owners)} never gets a gradient{why}",
            advice,
            severity="info" if unused else "error",
            site=site,
            op=kind,
            source=source,
            evidence={
                "parameters": names[:20],
                "count": len(names),
                "in_optimizer": True,
                "gradient": None,
                "cut": kind,
            },
            confidence=0.95 if blocked or cut else 0.8,
        )
    ]


def _dead_end(trace: Trace | None, names: list[str]) -> OpRecord | None:
    """The last op that is computed from these parameters, where none of their ops is on the way to the loss."""
    if trace is None or trace.loss is None:
        return None
    before = ancestors(trace, trace.ops[trace.loss])
    wanted, made = set(names), set[int]()
    last = None
    for op in trace.ops:
        if not any(fact.name in wanted or fact.id in made for fact in op.inputs):
            continue
        if op.index in before or op.index == trace.loss:
            return None
        made |= {fact.id for fact in op.outputs}
        last = op
    return last


def _in_a_library(case: Case, owner: str) -> bool:
    """Whether the module that calls `owner`, or that it is a part of, is written in a library other than torch."""
    modules = case.facts.modules
    while owner:
        fact = modules.get(owner)
        if fact is not None and not fact.library:
            return bool(fact.installed)
        owner = owner.rpartition(".")[0]
    return False


def _cut(trace: Trace | None, names: list[str], backward: SourceLine | None = None) -> OpRecord | None:
    """An op that takes what needs a gradient and gives what has none: of all, the one with most of these parameters
    behind it; of equals, the one with least else behind it. What gives no floats counts only on the way to the loss,
    and where nothing else was found: accuracies are computed everywhere. Where it is known which `backward()` the
    optimizer steps after, what that one differentiates is looked at first: another loss may well be detached on purpose."""
    if trace is None:
        return None
    loss = _differentiated(trace, backward)
    if loss is not None:
        before = ancestors(trace, loss)
        found = _most(trace, names, [op for op in trace.ops if op.index in before and op.outputs])
        if found is not None:
            return found
    found = _most(trace, names, [op for op in trace.ops if op.outputs and op.outputs[0].dtype in _FLOATS])
    if found is None and trace.loss is not None:
        before = ancestors(trace, trace.ops[trace.loss])
        found = _most(trace, names, [op for op in trace.ops if op.index in before and op.outputs])
    return found


def _differentiated(trace: Trace, backward: SourceLine | None) -> OpRecord | None:
    """The op that gave the value which this `backward()` begins from: the last one before that line to give a single
    value that has a gradient."""
    given = [
        op
        for op in trace.ops
        if backward
        and op.source is not None
        and op.source.file == backward.file
        and op.source.line <= backward.line
        and op.outputs
        and op.outputs[0].requires_grad
        and not op.outputs[0].shape
    ]
    return max(given, key=lambda op: (op.source.line if op.source else 0, op.index), default=None)


_FLOATS = frozenset(("float32", "float64", "float16", "bfloat16"))


def _most(trace: Trace, names: list[str], ops: list[OpRecord]) -> OpRecord | None:
    wanted = set(names)
    best: tuple[int, int] | None = None
    found = None
    for op in ops:
        if op.grad_enabled:
            given = [fact for fact in op.inputs if fact.requires_grad]
            if given and not any(fact.requires_grad for fact in op.outputs):
                behind = parameters_behind(trace, given)
                score = (len(behind & wanted), -len(behind - wanted))
                if score[0] and (best is None or score > best):
                    best, found = score, op
    return found


def _made_anew(trace: Trace | None) -> OpRecord | None:
    """The op on the way to the loss that makes a tensor of plain numbers: one that asks for a gradient of its own,
    or the loss itself. Constants that go into a loss ask for none."""
    if trace is None or trace.loss is None:
        return None
    before = ancestors(trace, trace.ops[trace.loss])
    made = [op for op in trace.ops if op.index in before and op.outputs and (not op.inputs or op.op == "tensor")]
    wanted = {fact.id for op in trace.ops for fact in (*op.inputs, *op.outputs) if fact.requires_grad}
    leaves = [op for op in made if op.outputs[0].id in wanted or op.index == trace.loss]
    return leaves[-1] if leaves else None


@rule("loss-without-graph", severity="error", phase="backward")
def loss_without_graph(case: Case) -> list[Finding]:
    """Backward passes run and the optimizer steps, but none of its parameters ever gets a gradient: the loss was cut
    off from the model, for example by making a new tensor from its value. The finding names the op that cuts the
    graph, or the op that makes the loss anew from plain numbers (`torch.tensor(...)`), wherever in the program that
    is.
    """
    sequence = case.facts.sequence
    if sequence.backwards < 3 or _without_gradient(case):
        return []
    for k, optimizer in enumerate(case.facts.optimizers):
        own = [name for name, fact in case.facts.parameters.items() if k in fact.optimizers and fact.requires_grad]
        if optimizer.looked_at < 3 or optimizer.had_gradients or optimizer.closure or not own:
            continue
        if any(gradient_rows(case, name) for name in own) or optimizer.emptied:
            continue
        if len(optimizer.unknown) == optimizer.parameters:
            continue  # it holds nothing of the model that runs: `optimizer-holds-old-parameters`
        cut = _cut(case.first, own, optimizer.backward_line)
        anew = _made_anew(case.first) if cut is None else None
        loss = case.sites.get("loss:value")
        return [
            case.finding(
                f"The loss does not depend on any parameter of {optimizer.type}: no gradient reaches it"
                + (
                    f" ({cut.op} cuts the graph)"
                    if cut
                    else f" ({anew.op} makes a new tensor from numbers)"
                    if anew
                    else ""
                ),
                (
                    "Keep the graph from the model's output to the loss: no .item(), .detach(), torch.tensor(...) "
                    "on the way."
                ),
                site=f"{cut.site}:out" if cut else "loss:value",
                op=cut.op if cut else anew.op if anew else None,
                source=(cut.source if cut else anew.source if anew else None)
                or case.facts.leaf_loss
                or (loss.source if loss else None),
                evidence={
                    "parameters": len(own),
                    "backward_passes": sequence.backwards,
                    "loss_has_no_history": case.facts.leaf_loss is not None,
                },
                confidence=0.9,
            )
        ]
    return []


@rule("gradients-discarded", severity="error", explains=("last-pass-only",))
def discarded(case: Case) -> list[Finding]:
    """Several backward passes run before one optimizer step, and the gradients of all but the last are cleared
    unused.

    The weights did not change in between (so it is not a two-step method such as SAM), no optimizer took a step, and
    the loss has no other leaves that require a gradient (so it is not an attack or saliency on inputs). If the step
    comes after the loop of the backward passes, the step is misplaced; otherwise the clearing.

    Or the backward pass left gradients, and when the optimizer steps they are gone: they are cleared between the two.
    """
    return _cleared_before_step(case) or _overwritten(case)


def _overwritten(case: Case) -> list[Finding]:
    sequence = case.facts.sequence
    windows = {tuple(map(int, key.split("/"))): count for key, count in sequence.windows.items()}
    bad = {key: count for key, count in windows.items() if key[0] >= 2 and key[1] >= key[0] - 1}
    steps = sum(windows.values())
    if steps < 2 or sum(bad.values()) < 0.8 * steps or sequence.foreign_leaves:
        return []
    (passes, wasted), _ = max(bad.items(), key=lambda pair: pair[1])
    late = next((o for o in case.facts.optimizers if o.steps_after_loop and o.steps), None)
    if late is not None:
        return [_stepped_late(case, late, passes, wasted, steps)]
    return [
        case.finding(
            (
                f"Gradients are cleared between the {passes} backward passes of one optimizer step: {wasted} of "
                f"{passes} are thrown away"
            ),
            (
                "Clear gradients once for each optimizer step: call zero_grad() right after step(), or only at the "
                "first micro-batch."
            ),
            phase="backward",
            source=sequence.wasted_line,
            evidence={"backward_passes_per_step": passes, "discarded": wasted, "steps": steps},
            confidence=0.93,
        )
    ]


def _stepped_late(case: Case, optimizer: OptimizerFact, passes: int, wasted: int, steps: int) -> Finding:
    return case.finding(
        (
            f"{optimizer.type} steps once after the loop of {passes} backward passes, and {wasted} of their gradients "
            "are cleared before"
        ),
        "Call step() inside the loop, after each backward().",
        phase="optimizer",
        source=optimizer.step_line,
        evidence={
            "backward_passes_per_step": passes,
            "discarded": wasted,
            "steps": steps,
            "backward_line": str(optimizer.backward_line),
        },
        confidence=0.93,
    )


@rule("gradients-never-cleared", severity="error", phase="backward")
def never_cleared(case: Case) -> list[Finding]:
    """Gradients of one optimizer step, or of one update by the script itself, are still there when the next backward
    pass adds to them, in nearly every step, or in most steps, for example if they are cleared once per epoch.
    """
    found = []
    by_hand = case.facts.by_hand
    if _mostly(by_hand.uncleared, by_hand.looked_at):
        found.append(
            case.finding(
                "Gradients are never cleared: every backward pass adds to the gradients of all earlier steps",
                "Call model.zero_grad() in every step, before backward().",
                step=1,
                source=backward_line(case) or by_hand.backward_line,
                evidence={"steps": by_hand.looked_at, "not_cleared": by_hand.uncleared},
                confidence=0.93,
            )
        )
    for optimizer in case.facts.optimizers:
        looked = optimizer.looked_at
        if _mostly(optimizer.uncleared, looked) and not optimizer.closure:
            found.append(
                case.finding(
                    f"Gradients are never cleared: every step of {optimizer.type} adds to those of all steps before"
                    if optimizer.uncleared >= 0.9 * (looked - 1)
                    else f"Gradients are cleared too seldom: {optimizer.uncleared} of {looked} steps of {optimizer.type} add to those of the step before",
                    "Call optimizer.zero_grad() in every step, before backward().",
                    step=1,
                    source=optimizer.added_up or backward_line(case) or optimizer.made,
                    evidence={"steps": looked, "not_cleared": optimizer.uncleared},
                    confidence=0.93,
                )
            )
    return found


def _between(optimizer: OptimizerFact, cleared: SourceLine | None) -> SourceLine | None:
    """The line that clears, where the program's text does not have it behind the step: something else cleared then, as by `p.grad = None`."""
    back, step = optimizer.backward_line, optimizer.step_line
    if cleared is None or back is None or step is None or not back.file == step.file == cleared.file:
        return cleared
    return None if back.line < step.line < cleared.line else cleared


def _mostly(uncleared: int, looked: int) -> bool:
    return looked >= 4 and uncleared >= (0.9 if looked < SURE else 0.5) * (looked - 1)


def _cleared_before_step(case: Case) -> list[Finding]:
    found = []
    sequence = case.facts.sequence
    for optimizer in case.facts.optimizers:
        looked = optimizer.looked_at
        if looked >= 3 and optimizer.emptied >= 0.8 * looked:
            found.append(
                case.finding(
                    f"Gradients are cleared between backward() and step(): {optimizer.type} steps with none",
                    "Call zero_grad() before backward() (or after step()), not between them.",
                    phase="optimizer",
                    source=_between(optimizer, sequence.cleared_line) or optimizer.step_line or optimizer.made,
                    evidence={"steps": looked, "without_gradients": optimizer.emptied},
                    confidence=0.95,
                )
            )
    return found
