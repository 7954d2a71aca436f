"""What is optimised: a loss that is made larger, a sample that the loss cannot reach the model through."""

from __future__ import annotations

from math import isfinite, prod

from tensonde.diagnose.analysis.direction import gets_worse, terms
from tensonde.diagnose.analysis.divergence import diverged
from tensonde.diagnose.analysis.flow import PASSING, ancestors, consumers, made_by, parameters_behind, producer
from tensonde.diagnose.analysis.rates import own_rates
from tensonde.diagnose.case import Case
from tensonde.diagnose.rule import rule
from tensonde.diagnose.told import backward_line
from tensonde.model.finding import Finding
from tensonde.model.ops import Trait, ops
from tensonde.model.trace import OpRecord, TensorFact, Trace

_NOISE = ops(Trait.NOISE)
_CUTS = ops(Trait.CUTS)
_LAYERS = ops(Trait.AFFINE | Trait.TRANSPOSED)


@rule("loss-maximised", severity="error", phase="optimizer")
def maximised(case: Case) -> list[Finding]:
    """The training makes an error larger, or the likelihood of the right classes smaller, and gets worse and worse:
    the optimizer was made with `maximize=True`, the script's own update goes up the gradient, the loss is the
    negative of an error (by `-` or a factor below 0), or the mean of log-probabilities without a minus sign.

    Several optimizers (an adversary), and losses with a term of another kind, such as rewards, are not reported.
    """
    stepping = case.stepping
    trace = case.first
    rates = own_rates(case)
    if trace is None or trace.loss is None or (len(stepping) != 1 and not rates):
        return []
    last = trace.ops[trace.loss]
    climbs = (
        any(group.get("maximize") is True for group in stepping[0].groups) if stepping else all(r < 0 for _, r in rates)
    )
    found = terms(trace, last)
    losses = [value for _, value in case.series("loss") if isfinite(value)]
    if not found or any(term.made_worse == climbs for term in found) or not gets_worse(losses):
        return []
    term = found[0]
    tenth = max(1, len(losses) // 10)
    first, end = sum(losses[:tenth]) / tenth, sum(losses[-tenth:]) / tenth
    up = "maximize=True" if stepping else "each update adds the gradient"
    why = (
        up
        if climbs
        else "the log-probabilities of the right classes are minimized"
        if term.likelihood
        else "its negative is minimized"
    )
    what = "The error" if term.likelihood else term.op.op
    return [
        case.finding(
            f"{what} is made larger: {why}, from {first:.3g} to {end:.3g}",
            "Minimise it: "
            + (
                "use maximize=True only for rewards."
                if climbs and stepping
                else "subtract the gradient, p -= lr * p.grad."
                if climbs
                else "put a minus sign before the mean."
                if term.likelihood and term.turned is None
                else "remove the minus sign from the loss."
            ),
            site="loss:value",
            op=term.op.op,
            source=(stepping[0].made if stepping else backward_line(case)) if climbs else (term.turned or last).source,
            evidence={
                "first": first,
                "last": end,
                "maximize": climbs,
                "negative": not climbs,
                **({"rate": rates[0][1]} if rates else {}),
            },
            confidence=0.93,
        )
    ]


SUMMED, UNREDUCED = 256, 16
"""Values in a sum, at least; in a loss that was meant to be one number, fewer tell."""


@rule("loss-summed", severity="warning", phase="forward")
def summed(case: Case) -> list[Finding]:
    """The training diverges, and its loss is a sum over many values: gradients grow with their number, and so does
    the effect of a learning rate. Reported beside the learning rate, because either of the two must change.
    """
    trace = case.first
    op = trace.ops[trace.loss] if trace is not None and trace.loss is not None else None
    if op is None or not op.inputs:
        return []
    left = (
        prod(op.outputs[0].shape) if op.outputs else 1
    )  # MindSpore differentiates the sum of a loss that is not reduced
    if left == 1 and not (op.op == "sum" or op.arguments.get("reduction") == "sum"):
        return []
    sizes = op.inputs[0].shape[:1] if op.op in ("cross_entropy", "nll_loss") else op.inputs[0].shape
    count = left if left > 1 else prod(sizes)
    ended = next((step for step, value in case.series("loss") if not isfinite(value)), case.steps)
    growth = diverged(case, ended) if count >= (SUMMED if left == 1 else UNREDUCED) else None
    if growth is None:
        return []
    module = case.module(op.module)
    what = f"has {count} values and is not reduced" if left > 1 else f"is a sum over {count} values"
    return [
        case.finding(
            f"The loss {what}: its gradients are {count} times those of a mean",
            'Use reduction="mean", or a learning rate smaller by that factor.',
            step=growth.step,
            site=f"{op.site}:out",
            op=op.op,
            source=module.made if module.library else op.source,
            evidence={"values": count, "lr": growth.rate},
            confidence=0.8,
        )
    ]


@rule("outputs-differentiated-too", severity="error", phase="backward")
def beside_the_loss(case: Case) -> list[Finding]:
    """A function that returns more than its loss is differentiated as a whole: the gradients are those of the loss
    plus the sum of all its other outputs, such as logits. Only MindSpore allows this.
    """
    beside = case.facts.beside_loss
    if beside is None or not beside.shapes:
        return []
    shapes = " and ".join("x".join(map(str, shape)) or "one value" for shape in beside.shapes)
    return [
        case.finding(
            f"The gradients are those of the loss plus the sum of what is returned beside it ({shapes})",
            "Pass has_aux=True where the function is differentiated, or return only the loss.",
            site="loss:value",
            source=beside.line or case.facts.sequence.backward_line,
            evidence={"shapes": beside.shapes},
            confidence=0.95,
        )
    ]


@rule("sample-without-gradient", severity="error", phase="backward")
def unreachable_sample(case: Case) -> list[Finding]:
    """A random sample is made from a part's outputs with the graph cut (`.data`, `detach()`, or `sample()` of a
    distribution where `rsample()` is meant) and goes into a layer on the way to the loss. The part gets no gradient
    through it, only from other terms such as a KL divergence: it learns to satisfy those alone.

    Actions of a policy are not reported: they go into a log-probability, which compares them with the mean.
    """
    trace = case.first
    reached = set(case.facts.reached)
    if trace is None or trace.loss is None:
        return []
    before_loss = ancestors(trace, trace.ops[trace.loss])
    for op in trace.ops:
        if op.op not in _LAYERS or op.index not in before_loss or not op.inputs or op.inputs[0].requires_grad:
            continue
        if not op.grad_enabled or not any(fact.requires_grad and fact.name for fact in op.inputs[1:]):
            continue
        cut = _cut_sample(trace, op.inputs[0])
        if cut is None:
            continue
        made, behind = cut
        if not behind or not behind <= reached:
            continue
        called = {"data": ".data", "normal": "sample()"}.get(made.op, "detach()")
        return [
            case.finding(
                f"A random sample that goes into {op.module or op.site} is cut from the graph by {called}",
                (
                    "Use rsample(): it lets the gradient through."
                    if made.op == "normal"
                    else f"Remove {called}: mean + std * noise lets the gradient through."
                ),
                site=f"{made.module}:out" if made.module else f"{made.site}:out",
                op=made.op,
                source=made.source,
                evidence={"parameters": sorted(behind)[:20], "goes_into": op.site},
                confidence=0.9,
            )
        ]
    return []


def _cut_sample(trace: Trace, fact: TensorFact) -> tuple[OpRecord, set[str]] | None:
    """The op that cuts, and the parameters behind it, where a value is mean + std * noise (or drawn by `normal`)."""
    made = made_by(trace, fact, PASSING | _CUTS)
    if made is None:
        return None
    if any(user.op in ("sub", "rsub") for user in consumers(trace, made.outputs[0])):
        return None  # an action, whose probability is what is trained
    if made.op == "normal":
        return made, parameters_behind(trace, made.inputs)
    if made.op != "add" or len(made.inputs) != 2:
        return None
    products = [p for p in (producer(trace, given) for given in made.inputs) if p is not None and p.op == "mul"]
    noisy = any((q := made_by(trace, given)) is not None and q.op in _NOISE for p in products for given in p.inputs)
    cuts = [op for given in (*made.inputs, *(g for p in products for g in p.inputs)) if (op := producer(trace, given))]
    cutting = next((op for op in cuts if op.op in _CUTS and op.inputs and op.inputs[0].requires_grad), None)
    if cutting is None and producer(trace, fact) is not made:  # the sum itself is cut
        outer = producer(trace, fact)
        cutting = outer if outer is not None and outer.op in _CUTS else None
    if not noisy or cutting is None:
        return None
    return cutting, parameters_behind(trace, made.inputs)
