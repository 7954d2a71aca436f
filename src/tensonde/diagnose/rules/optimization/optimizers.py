"""What optimizers do to the parameters that they hold: nothing, too much, or with settings that nobody means."""

from __future__ import annotations

from itertools import pairwise
from math import inf
from statistics import median

from tensonde.diagnose.analysis.direction import of_parameters
from tensonde.diagnose.analysis.flow import producer
from tensonde.diagnose.case import Case
from tensonde.diagnose.rule import rule
from tensonde.model.facts import RenewedFact
from tensonde.model.finding import Finding
from tensonde.model.ops import Trait, ops

LEFT = 0.3
"""Of their norm: what a penalty that rules has left of weights."""
OUTWEIGHS = 5
KEPT = 0.98
"""Of their norm from one step to the next: weights that keep less forget what they learn within fifty steps."""


@rule("weights-reset", severity="error")
def weights_reset(case: Case) -> list[Finding]:
    """All weight matrices of an optimizer get random values again (`nn.init`, `reset_parameters()`) after it has
    stepped, more than once, and it continues stepping: everything learned until then is lost each time. A run per
    fold or seed also creates a new optimizer; resetting one layer now and then is a method.
    """
    found = []
    for reset in case.facts.refilled:
        optimizer = case.facts.optimizers[reset.optimizer]
        if reset.times < 2 or reset.matrices < reset.of or optimizer.steps <= reset.last_after_steps:
            continue
        found.append(
            case.finding(
                f"All weights of {optimizer.type} are reinitialized {reset.times} times while it trains them",
                "Initialize once, before the training loop.",
                step=None,
                source=reset.line,
                evidence={
                    "times": reset.times,
                    "weight_matrices": reset.matrices,
                    "optimizer_steps": optimizer.steps,
                },
                confidence=0.93,
            )
        )
    return found[:1]


@rule("nothing-updates-parameters", severity="error")
def nothing_updates(case: Case) -> list[Finding]:
    """Backward passes run again and again, and an optimizer whose parameters get gradients is never stepped. Steps
    that a gradient scaler skips have their own rule (`scaler-skips-all`). Silent if parameters change all the same:
    the step may be part of compiled code, or another rank may step and send its weights.

    Or there is no optimizer, gradients are cleared in every step, and nothing ever changes a parameter: the script's
    own update is missing or its learning rate is 0. Silent then if gradients may be all that is wanted: of inputs
    (the loss has other leaves that require a gradient), of a model in eval mode, or of one whose weights were loaded.
    """
    return _never_steps(case) or _no_own_update(case)


def _never_steps(case: Case) -> list[Finding]:
    facts = case.facts
    if case.series("skipped") or _renewed(case):  # others, gone by now, step on its parameters
        return []
    if facts.by_hand.updates or any(one.parameters for one in facts.collectives):
        return []
    backwards = facts.sequence.backwards
    found = []
    busy = {k for k, optimizer in enumerate(facts.optimizers) if optimizer.steps}
    alone = {
        k for fact in case.facts.parameters.values() if not busy.intersection(fact.optimizers) for k in fact.optimizers
    }
    for k, optimizer in enumerate(facts.optimizers):
        if backwards >= 10 and optimizer.steps == 0 and optimizer.had_gradients and k in alone:
            found.append(
                case.finding(
                    (
                        f"{optimizer.type} is never stepped: {backwards} backward passes changed nothing in its "
                        f"{optimizer.parameters} parameters"
                    ),
                    "Call optimizer.step() after backward().",
                    step=None,
                    source=facts.sequence.backward_line or optimizer.made,
                    evidence={"backwards": backwards, "steps": 0, "made_at": str(optimizer.made or "")},
                    confidence=0.9,
                )
            )
    return found


def _no_own_update(case: Case) -> list[Finding]:
    by_hand, facts = case.facts.by_hand, case.facts
    looked = by_hand.looked_at
    if looked < 10 or by_hand.unchanged < looked or by_hand.updates or facts.optimizers:
        return []
    held = [fact for fact in case.facts.parameters.values() if fact.requires_grad]
    if facts.sequence.foreign_leaves or any(fact.loaded for fact in held):
        return []
    if not held or not all(fact.owner_training for fact in held):
        return []
    return [
        case.finding(
            f"No parameter ever changes: {looked} steps computed gradients for {len(held)} parameters and used none",
            "Update the parameters after backward(), with an optimizer or p -= lr * p.grad; check that lr is not 0.",
            severity="warning",
            phase="optimizer",
            source=by_hand.backward_line,
            evidence={"steps": looked, "parameters": len(held), "optimizers": 0},
            confidence=0.8,
        )
    ]


def _renewed(case: Case) -> list[RenewedFact]:
    """Lines that made an optimizer for (nearly) every step."""
    return [made for made in case.facts.renewed if made.count >= 10 and made.steps < 1.2 * made.count]


@rule("optimizer-made-every-step", severity="error", phase="optimizer")
def made_every_step(case: Case) -> list[Finding]:
    """Every step creates a new optimizer for the same parameters: what it remembers (momentum, Adam's moments) starts
    from zero each time, so Adam becomes sign descent and momentum has no effect.

    Plain SGD remembers nothing and is not reported, nor are inner loops that take several steps with each optimizer.
    """
    return [
        case.finding(
            f"A new {made.type} is created for every step: {made.count} of them, and none remembers anything",
            "Create the optimizer once, before the loop.",
            source=made.line,
            evidence={"made": made.count, "steps": made.steps},
            confidence=0.93,
        )
        for made in _renewed(case)
        if made.remembers
    ][:1]


FIRST_STEPS = 5


@rule("learning-rate-zero", severity="error")
def learning_rate_zero(case: Case) -> list[Finding]:
    """The learning rate is exactly 0 in every step of a group that is stepped: nothing is learned. If a scheduler
    turns a rate above 0 into 0, the finding names the scheduler.
    """
    found = []
    counted = len(case.stepping) == 1
    for k, optimizer in enumerate(case.stepping):
        place_in_list = case.facts.optimizers.index(optimizer)
        scheduler = next(
            (s for s in case.facts.schedulers if s.optimizer == place_in_list and any(rate > 0 for rate in s.base_lrs)),
            None,
        )
        # a schedule may begin at 0
        moving = bool(case.facts.schedulers or case.facts.rates_set)
        least = FIRST_STEPS if moving else 2
        for g, group in enumerate(optimizer.groups[:8]):
            series = [value for _, value in case.series(f"lr/{g}")] if counted else []
            steps = len(series) if counted else optimizer.steps
            # of several optimizers, one has a series: what nothing changes is 0 throughout
            zero = (
                all(value == 0 for value in series)
                if counted
                else not moving and group.get("lr") == 0 == optimizer.made_with
            )
            if steps >= least and zero and group["parameters"] and (counted or optimizer.had_gradients):
                found.append(
                    case.finding(
                        f"The learning rate of {optimizer.type} is 0 in all {steps} steps",
                        "Give the optimizer a learning rate above 0, or look at the scheduler that sets it.",
                        step=None,
                        source=scheduler.made if scheduler else optimizer.made,
                        evidence={
                            "group": g,
                            "steps": steps,
                            "optimizer": k,
                            "scheduler": scheduler.type if scheduler else None,
                        },
                        confidence=0.95,
                    )
                )
    return found[:1]


@rule("weight-decay-dominates", severity="error")
def weight_decay(case: Case) -> list[Finding]:
    """Weight decay pulls harder than the gradient from the start, and the weights shrink towards zero.

    With decay coupled to the gradient (SGD, Adam), the two are compared as they are added, wd * |w| against |g|; with
    decoupled decay (AdamW), a step shrinks weights by lr * wd, and more than 0.2 % per step is far from usual. Above
    5 %, nothing that a step learns outlasts the next dozen, whatever the weights do. The same pull may come from a
    term of the loss that is computed from parameters alone (a penalty many times larger than the rest, under which
    weights shrink to a third or less), or from the program's own lines that shrink weights between steps.
    """
    found = _penalty(case) or _shrunk_by_hand(case)
    for optimizer in case.stepping:
        for group in optimizer.groups:
            decay, lr = float(group.get("weight_decay") or 0), float(group.get("initial_lr", group.get("lr") or 0))
            decoupled = optimizer.type in ("AdamW", "Lion") or group.get("decoupled_weight_decay") is True
            if decay <= 0:
                continue
            shrunk = _shrinking(case, decay)
            if not shrunk and decoupled and lr * decay > 0.05:
                shrunk = [("", 0.0, float("inf"))]
            if not shrunk:
                continue
            if decoupled and lr * decay < 2e-3:
                continue
            if not decoupled and decay < 0.02:
                continue
            name, shrink, ratio = shrunk[0]
            momentum = group.get("momentum")
            swapped = isinstance(momentum, float) and 0 < momentum < 0.05 and decay >= 0.1
            found.append(
                case.finding(
                    f"weight_decay={decay:g} of {optimizer.type} outweighs the gradient: weights decay towards 0",
                    (
                        f"momentum={momentum:g} and weight_decay={decay:g} look swapped: exchange them."
                        if swapped
                        else "Use a far smaller weight decay (1e-4 to 1e-2 is usual)."
                    ),
                    site=f"{name}:value" if name else None,
                    source=optimizer.made,
                    evidence={
                        "weight_decay": decay,
                        "lr": lr,
                        "momentum": momentum,
                        **(
                            {"decay_over_gradient": ratio, "norm_left": shrink, "weights_shrinking": len(shrunk)}
                            if name
                            else {}
                        ),
                    },
                    confidence=0.9,
                )
            )
            break
    return found


def _norms_left(case: Case) -> dict[str, list[float]]:
    """Norms of the trained matrices over the steps."""
    names = [n for n, f in case.facts.parameters.items() if len(f.shape) >= 2 and f.requires_grad]
    known = {name: [row["norm"] for row in case.digests(f"{name}:value", ("step", "norm"))] for name in names}
    return {name: norms for name, norms in known.items() if len(norms) >= 8 and all(0 < n < inf for n in norms)}


def _penalty(case: Case) -> list[Finding]:
    trace = case.first
    total = trace.ops[trace.loss] if trace is not None and trace.loss is not None else None
    norms = _norms_left(case)
    if trace is None or total is None or total.op not in ops(Trait.PLUS) or not norms or len(total.inputs) != 2:
        return []
    if sum(left[-1] < LEFT * left[0] for left in norms.values()) < 0.6 * len(norms):
        return []
    sides = [(producer(trace, fact), fact) for fact in total.inputs]
    for k, (made, fact) in enumerate(sides):
        rest = sides[1 - k][1].stats.get("absmax", 0.0)
        size = fact.stats.get("absmax", 0.0)
        if made is None or not of_parameters(trace, made) or size < OUTWEIGHS * rest:
            continue
        return [
            case.finding(
                f"A penalty of the weights outweighs the rest of the loss ({size:.3g} against {rest:.3g}): weights shrink towards 0",
                "Give it a far smaller weight (1e-4 is usual), so that it is a small part of the loss.",
                source=made.source,
                op=made.op,
                evidence={"penalty": size, "rest": rest, "weights": len(norms)},
                confidence=0.88,
            )
        ]
    return []


def _shrunk_by_hand(case: Case) -> list[Finding]:
    """Matrices lose the same share of their norm in each step, many times what the optimizer's step moved them by in the first."""
    trace = case.first
    moved = {w.name: w.moved.get("norm", 0.0) for w in trace.weights if w.moved} if trace is not None else {}
    norms = {name: left for name, left in _norms_left(case).items() if moved.get(name)}
    optimizers = case.stepping
    if (
        not norms
        or len(optimizers) != 1
        or any(float(group.get("weight_decay") or 0) for group in optimizers[0].groups)
    ):
        return []
    shares = {name: median(b / a for a, b in pairwise(left[:20]) if a > 0) for name, left in norms.items()}
    hit = [name for name, kept in shares.items() if kept < KEPT and (1 - kept) * norms[name][0] > 3 * moved[name]]
    if len(hit) < 0.6 * len(norms):
        return []
    name = hit[0]
    return [
        case.finding(
            f"Weights lose {1 - shares[name]:.1%} of their size between steps: what is learned is gone after a few",
            "Look for the line that multiplies parameters after each step, and shrink them far less (1e-4 of the learning rate is usual).",
            site=f"{name}:value",
            source=optimizers[0].step_line or optimizers[0].made,
            evidence={
                "share_kept": round(shares[name], 4),
                "moved_by_the_step": moved[name] / norms[name][0],
                "weights": len(hit),
            },
            confidence=0.85,
        )
    ]


def _shrinking(case: Case, decay: float) -> list[tuple[str, float, float]]:
    """(name, share of the norm left, decay over gradient) of weight matrices that decay; empty unless most of them
    do.
    """
    found, matrices = [], 0
    for name, fact in case.facts.parameters.items():
        if len(fact.shape) < 2 or not fact.optimizers:
            continue
        values = case.digests(f"{name}:value", ("step", "norm"))
        gradients = {row["step"]: row["norm"] for row in case.digests(f"{name}:grad", ("step", "norm"))}
        if len(values) < 8 or values[0]["norm"] <= 0:
            continue
        matrices += 1
        ratios = sorted(
            decay * row["norm"] / gradients[row["step"]] for row in values if gradients.get(row["step"], 0) > 0
        )
        left = values[-1]["norm"] / values[0]["norm"]
        middle = ratios[len(ratios) // 2] if ratios else float("inf")
        if left < 0.5 and middle > 0.5:
            found.append((name, left, middle))
    return found if matrices and len(found) >= 0.6 * matrices else []


@rule("betas-exchanged", severity="warning", phase="optimizer")
def betas(case: Case) -> list[Finding]:
    """Adam has a first beta of 0.99 or more, above the second: the two look swapped."""
    for optimizer in case.stepping:
        for group in optimizer.groups:
            given = group.get("betas")
            if isinstance(given, list) and len(given) == 2 and given[0] >= 0.99 and given[0] > given[1]:
                return [
                    case.finding(
                        f"betas=({given[0]:g}, {given[1]:g}) of {optimizer.type} look swapped",
                        "The first belongs to the mean (0.9), the second to the square (0.999).",
                        source=optimizer.made,
                        evidence={"betas": given},
                        confidence=0.85,
                    )
                ]
    return []
