"""Train and eval mode, and dropout that does not follow it."""

from __future__ import annotations

from tensonde.diagnose.case import Case
from tensonde.diagnose.rule import rule
from tensonde.diagnose.told import some
from tensonde.model.facts import FrozenNorms, ModuleFact
from tensonde.model.finding import Finding

EXTREME = 0.9


@rule("trained-in-eval-mode", severity="error", phase="forward")
def trained_in_eval(case: Case) -> list[Finding]:
    """A model with dropout or batch norm is stepped while it is in eval mode: `train()` was not called (again) after
    an evaluation. The line is that of the only `train()`, which comes before the loop instead of inside it, or of the
    `eval()` that nothing undid. The same applies if a part with dropout was put into eval mode after it had trained,
    and was left there, whatever mode the model is in. Silent if only batch norm is in eval mode: freezing it is a
    choice.
    """
    found = _parts_left(case)
    for name, root in case.facts.roots.items():
        wrong, right = root.trained["eval"], root.trained["train"]
        if not root.sensitive or wrong < 3 or wrong < 0.3 * (wrong + right):
            continue
        since = root.first_eval_step
        if right and root.last_train_step is not None and root.last_train_step > (since or 0) + right:
            continue  # goes back and forth
        early = root.train_line if right else None
        found.append(
            case.finding(
                (
                    f"{name} is trained in eval mode from step {since} on: {some(root.sensitive.values(), 2)} do "
                    "not train"
                ),
                "Call model.train() at the start of each epoch, after every evaluation.",
                severity="error" if right else "warning",
                step=since,
                site=f"{name}:out",
                source=early or root.eval_line or root.made,
                evidence={
                    "eval_called_at": str(root.eval_line or ""),
                    "steps_in_eval_mode": wrong,
                    "steps_in_train_mode": right,
                    "modules": list(root.sensitive)[:10],
                },
                confidence=0.92 if right else 0.75,
            )
        )
    return found


def _parts_left(case: Case) -> list[Finding]:
    trained = {fact.owner for fact in case.facts.parameters.values() if fact.requires_grad and fact.optimizers}
    for name, root in case.facts.roots.items():
        parts = [one for one in root.left if one.line is not None]
        steps = sum(root.trained.values())
        drops = [
            one
            for one in parts
            if root.sensitive.get(one.part, "").startswith("Dropout") and root.partial.get(one.part, 0) >= 0.3 * steps
        ]
        beside = drops[0].part.rpartition(".")[0] if drops else ""
        full = f"{name}.{beside}" if name not in ("", "model") else beside
        if not drops or not any(owner.startswith((f"{beside}.", f"{full}.")) for owner in trained):
            continue
        first = drops[0]
        return [
            case.finding(
                f"{beside} is left in eval mode from step {first.since} on, and trained: {some([one.part for one in parts])} do not train",
                f"Call {beside}.train() after using it in eval mode (or model.train() before each step).",
                step=first.since,
                site=f"{beside}:out",
                source=first.line,
                evidence={"parts": [one.part for one in parts][:10], "steps_in_eval_mode": root.partial.get(first.part), "steps": steps},
                confidence=0.85,
            )
        ]  # fmt: skip
    return []


@rule("evaluated-in-train-mode", severity="warning", phase="forward")
def evaluated_in_train(case: Case) -> list[Finding]:
    """A model with dropout or batch norm is evaluated now and then, always in train mode: `eval()` is missing. The
    line is where the evaluation begins. Silent if calls without gradients are part of every step (targets, fakes), or
    if several optimizers step after their own backward passes (an adversary draws samples in train mode). Whatever
    the program calls outside the loops that run backward is an evaluation, however often.
    """
    found = []
    one_loss = len(case.stepping) + (case.facts.by_hand.updates > 0) == 1 or _one_backward(case)
    for name, root in case.facts.roots.items():
        calls, steps = root.evaluated["train"], root.evaluated_steps["train"]
        line = root.evaluated_line
        if calls < 2:  # or with gradients, whose graph nobody uses
            unused = [d for d in case.facts.graphs.discarded if d.root == name]
            calls = steps = sum(d.calls for d in unused)
            line = unused[0].line if unused else None
        if not root.sensitive or root.eval_mode_seen or calls < 2 or not root.trained["train"]:
            continue
        if case.steps < 8 or not (one_loss and (root.apart or steps <= 0.3 * case.steps)):
            continue
        found.append(
            case.finding(
                (
                    f"{name} is evaluated in train mode: {some(sorted(set(root.sensitive.values())), 2)} is "
                    "active in evaluation"
                ),
                "Call model.eval() before the evaluation and model.train() after it.",
                step=None,
                site=f"{name}:out",
                source=line or root.made,
                evidence={
                    "calls_in_train_mode_that_nothing_is_trained_on": calls,
                    "in_eval_mode": 0,
                    "modules": list(root.sensitive)[:10],
                },
                confidence=0.75,
            )
        )
    return found


def _one_backward(case: Case) -> bool:
    """Several optimizers that step after one and the same `backward()`."""
    lines = {optimizer.backward_line for optimizer in case.stepping}
    return len(lines) == 1 and None not in lines


@rule("dropout-active-in-eval", severity="error", phase="forward")
def dropout_in_eval(case: Case) -> list[Finding]:
    """Dropout is active in evaluation: through a functional call without `training=self.training`, or attention with
    a fixed `dropout_p`, in a module in eval mode; or through a dropout in train mode that is not registered as a part
    of the root, so that `eval()` does not reach it. If it is registered, the program itself set it, as for
    Monte-Carlo dropout: that is information, not a warning.
    """
    found = _left_in_train_mode(case)
    for noise in case.facts.noise:
        if noise.module_training:
            continue
        fix = (
            "dropout_p=self.p if self.training else 0.0"
            if noise.op == "scaled_dot_product_attention"
            else "training=self.training"
        )
        found.append(
            case.finding(
                f"{noise.op} (p={noise.p:g}) in {noise.module} ({noise.type}) is active in eval mode",
                f"Pass {fix}, or use nn.Dropout.",
                step=None,
                site=f"{noise.module}:out",
                op=noise.op,
                source=noise.line,
                evidence={"p": noise.p, "module.training": False, "training_argument": True},
                confidence=0.97,
            )
        )
    return found[:5]


def _left_in_train_mode(case: Case) -> list[Finding]:
    found = []
    for noise in case.facts.noise:
        if noise.module_training and noise.library:
            fact = case.module(noise.module)
            hidden = fact.hidden or not noise.registered
            found.append(
                case.finding(
                    f"{noise.module} ({noise.type}) stays in train mode when the model is in eval mode",
                    "Register it as an attribute of the model (or in nn.ModuleList), so that eval() reaches it."
                    if hidden
                    else "Do not set it to train mode in evaluation, unless you want the noise (Monte-Carlo dropout).",
                    severity="warning" if hidden else "info",
                    step=None,
                    site=f"{noise.module}:out",
                    source=fact.made or noise.line,
                    evidence={
                        "p": noise.p,
                        "module.training": True,
                        "root.training": False,
                        "registered": not hidden,
                    },
                    confidence=0.85 if hidden else 0.6,
                )
            )
    return found[:3]


@rule("dropout-rate-extreme", severity="warning", phase="forward")
def extreme_dropout(case: Case) -> list[Finding]:
    """Dropout, as a layer or a function, drops nine values of ten or more: its rate was probably meant as the share
    to keep.
    """
    held = [
        (name, f"{name} ({module.type})", module.settings["p"], module.made)
        for name, module in case.facts.modules.items()
        if module.type.startswith("Dropout") and module.settings.get("p", 0) >= EXTREME and case.steps
    ]
    called = [
        (op.module, f"{op.op} in {op.module or 'the program'}", op.arguments["p"], op.source)
        for _, op in case.trained_ops()
        if op.op.startswith("dropout") and isinstance(op.arguments.get("p"), int | float) and op.arguments["p"] >= EXTREME and op.arguments.get("training") is not False
    ]  # fmt: skip
    return [
        case.finding(
            f"{what} drops {rate:.0%} of its input",
            "p is the probability of dropping, not of keeping.",
            site=f"{name}:out",
            source=line,
            evidence={"p": rate},
            confidence=0.8,
        )
        for name, what, rate, line in (held or called)[:1]
    ]


@rule("batch-norm-momentum", severity="warning", phase="forward")
def norm_momentum(case: Case) -> list[Finding]:
    """Batch norm has a momentum of 0.9 or more. In torch, momentum is the weight of the new batch, so the running
    statistics that eval mode uses are those of the last batch. Other frameworks mean the reverse.

    Or its momentum is 0: it never changes its running statistics, and eval mode normalizes with the initial mean 0
    and variance 1 (momentum=None, a plain average, is different). Silent then if no model is ever used in eval mode,
    or if a loaded state brought its own statistics. Silent about classes that are not the framework's own.
    """
    never = _norm_never_updated(case)
    if never:
        return never
    found = [
        (name, module)
        for name, module in case.facts.modules.items()
        if module.library
        and module.type.startswith("BatchNorm")  # another library's class may mean the reverse by it, as Keras's does
        and (module.settings.get("momentum") or 0) >= 0.9
        and case.steps
    ]
    for name, module in found[:1]:
        weight = module.settings["momentum"]
        old = _weighs_the_old(case, module)
        given, right = (1 - weight, weight) if old else (weight, 1 - weight)
        weighed = (
            "in MindSpore it is the weight of the old statistics, not of the new batch"
            if old
            else "in torch it is the weight of the new batch, not of the old statistics"
        )
        return [
            case.finding(
                f"{name} ({module.type}) has momentum {given:.3g}: its statistics are those of the last batch",
                f"Use momentum={right:.3g}: {weighed}.",
                site=f"{name}:out",
                source=module.made,
                evidence={"momentum": round(given, 6)},
                confidence=0.85,
            )
        ]
    return []


def _norm_never_updated(case: Case) -> list[Finding]:
    evaluated = any(root.eval_mode_seen for root in case.facts.roots.values())
    loaded = any(fact.loaded for fact in case.facts.parameters.values())
    if not case.steps or not evaluated or loaded:
        return []
    found = []
    for name, module in case.facts.modules.items():
        old = _weighs_the_old(case, module)
        keeps = old or module.settings.get("track_running_stats")
        if not module.library or not module.type.startswith("BatchNorm") or not keeps:
            continue
        if module.settings.get("momentum") != 0:
            continue
        given, usual = (1, 0.9) if old else (0, 0.1)
        found.append(
            case.finding(
                f"{name} ({module.type}) has momentum {given}: its running statistics stay at mean 0 and variance 1",
                f"Use momentum={usual} (the default); eval mode normalizes with these statistics.",
                severity="error",
                site=f"{name}:out",
                source=module.made,
                evidence={"momentum": given},
                confidence=0.92,
            )
        )
    return found[:1]


def _weighs_the_old(case: Case, module: ModuleFact) -> bool:
    """MindSpore's momentum is the weight of the old statistics, and it keeps one minus that; mint's is torch's."""
    return case.framework == "mindspore" and "track_running_stats" not in module.settings


@rule("frozen-batch-norm-drifts", severity="warning", phase="forward")
def frozen_norm_drifts(case: Case) -> list[Finding]:
    """A part is frozen as a whole (none of its parameters requires a gradient, and none changes), but its batch
    norms, which have earlier statistics, are in train mode while something else is trained. Their statistics move to
    the new data, so the part does not stay the same. `requires_grad=False` does not stop that; eval mode does.

    If a function returns a finished model (a teacher), the place for `eval()` is where the program gets it, so that
    line is named; otherwise the program's only `train()`, which undoes an earlier `eval()`, or the line that freezes
    it. Silent for a part that is trained later, that a moving average changes, that had no statistics yet, or whose
    input comes from something that is trained.
    """
    found = []
    for part in case.facts.frozen_norms:
        if not part.experienced or part.looks < 5 or part.drifted < 0.8 * part.looks:
            continue
        if _fed_by_trained(case, part):
            continue
        fact = case.module(part.branch)
        own = part.variable
        name = (own.name if own else "") or part.branch
        found.append(
            case.finding(
                (
                    f"{name} is frozen, and the running statistics of its batch norm ({some(part.norms, 2)}) "
                    "change: it is in train mode"
                ),
                (
                    f"Call {name}.eval()"
                    + ("" if own else " after each train()")
                    + ": freezing parameters does not freeze statistics."
                ),
                step=part.since,
                site=f"{part.branch}:out",
                source=(own.line if own else None) or case.facts.train_call or case.facts.freezes or fact.made,
                evidence={
                    "frozen_at": str(case.facts.freezes or ""),
                    "looks": part.looks,
                    "statistics_had_changed": part.drifted,
                    "norms": part.norms,
                },
                confidence=0.85,
            )
        )
    return found[:1]


def _fed_by_trained(case: Case, part: FrozenNorms) -> bool:
    names = {path if part.branch in ("", path) else f"{part.branch}.{path}" for path in part.norms}
    names |= set(part.norms)
    return any(
        op.op == "batch_norm" and op.module in names and bool(op.inputs) and op.inputs[0].requires_grad
        for trace in case.stages
        if trace.step >= part.since
        for op in trace.ops
    )
