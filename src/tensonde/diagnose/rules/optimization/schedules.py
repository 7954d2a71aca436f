"""Learning-rate schedules: their order, their length, and what they make of the learning rate."""

from __future__ import annotations

from itertools import pairwise

from msgspec import to_builtins

from tensonde.diagnose.case import Case
from tensonde.diagnose.rule import rule
from tensonde.diagnose.told import ended_by_itself
from tensonde.model.facts import SchedulerFact, WatchedValue
from tensonde.model.finding import Finding


def _base(case: Case, schedulers: list[SchedulerFact]) -> float:
    rates = [lr for s in schedulers for lr in s.base_lrs[:1]]
    optimizers = case.facts.optimizers
    rates += [float(g.get("initial_lr", 0)) for o in optimizers[:1] for g in o.groups[:1]]
    return max(rates, default=0.0)


@rule("warmup-longer-than-training", severity="error", phase="optimizer")
def warmup(case: Case) -> list[Finding]:
    """The learning rate rises through the whole training and ends far below the rate that was asked for."""
    schedulers = case.facts.schedulers
    rates = [value for _, value in case.series("lr/0")]
    base = _base(case, schedulers)
    if not schedulers or len(rates) < 10 or base <= 0 or not ended_by_itself(case):
        return []
    rising = all(b >= a for a, b in pairwise(rates)) and rates[-1] > rates[0]
    if not rising or rates[-1] > 0.5 * base:
        return []
    scheduler = max(schedulers, key=lambda s: s.steps)
    long = {n: given for n, given in scheduler.names.items() if given.value > len(rates) and given.line}
    name, given = max(long.items(), key=lambda pair: pair[1].value) if long else ("", None)
    return [
        case.finding(
            (
                f"The warm-up of {scheduler.type} never ends: the learning rate gets to {rates[-1] / base:.1%} "
                f"of {base:g} in {len(rates)} steps"
            ),
            f"Make the warm-up a small part of the {len(rates)} steps"
            + (f" ({name} is {given.value:g})." if given else "."),
            site="lr_scheduler",
            source=given.line if given else scheduler.made,
            evidence={
                "first_lr": rates[0],
                "last_lr": rates[-1],
                "base_lr": base,
                "steps": len(rates),
                "scheduler": scheduler.type,
            },
            confidence=0.93,
        )
    ]


@rule("learning-rate-collapses", severity="error", phase="optimizer")
def collapse(case: Case) -> list[Finding]:
    """A schedule takes the learning rate below a thousandth of its start for more than half of the training: it
    was made for fewer steps (epochs) than it is stepped, as when a schedule in epochs is stepped at every batch. One that
    watches a value goes by what it was made with: its direction (`mode`) and its patience.
    """
    schedulers = [s for s in case.facts.schedulers if s.steps > 1]
    rates = [value for _, value in case.series("lr/0")]
    if not schedulers or len(rates) < 30:
        return []
    peak = max(rates)
    low = sum(1 for value in rates[rates.index(peak) :] if value < 1e-3 * peak)
    if peak <= 0 or low < 0.5 * len(rates):
        return []
    scheduler = max(schedulers, key=lambda s: s.steps)
    watched = scheduler.watched
    if watched:
        return [_watching(case, scheduler, watched, peak, rates, low)]
    return [
        case.finding(
            (
                f"{scheduler.type} takes the learning rate to {rates[-1]:.1e} ({rates[-1] / peak:.0e} of its "
                f"peak): {low} of {len(rates)} steps hardly move"
            ),
            ("Step the scheduler once per epoch if its numbers count epochs, or once per batch if they count batches."),
            step=None,
            site="lr_scheduler",
            source=scheduler.line or scheduler.made,
            evidence={
                "peak_lr": peak,
                "last_lr": rates[-1],
                "steps_below_a_thousandth": low,
                "steps": len(rates),
                "scheduler_steps": scheduler.steps,
            },
            confidence=0.85,
        )
    ]


def _watching(
    case: Case, scheduler: SchedulerFact, watched: WatchedValue, peak: float, rates: list[float], low: int
) -> Finding:
    first, last, least = (
        watched.first,
        watched.first if watched.last is None else watched.last,
        watched.mode == "min",
    )
    against = last > first if least else last < first
    moved = "rose" if last > first else "fell"
    return case.finding(
        (
            f"{scheduler.type} takes the learning rate to {rates[-1]:.1e} ({rates[-1] / peak:.0e} of its peak)"
            + (
                f": in mode {watched.mode!r} it waits for the value to {'fall' if least else 'rise'}, which {moved} "
                f"from {first:.4g} to {last:.4g}"
                if against
                else ": its patience is too short for this value"
            )
        ),
        f"For a value that is best when it is {'large' if least else 'small'}, pass mode="
        f"{'max' if least else 'min'!r}; else give it more patience."
        if against
        else "Give it more patience, a factor nearer to 1, and a min_lr.",
        step=None,
        site="lr_scheduler",
        source=scheduler.made or scheduler.line,
        evidence={
            "peak_lr": peak,
            "last_lr": rates[-1],
            "steps_below_a_thousandth": low,
            "watched": to_builtins(watched),
        },
        confidence=0.85,
    )


@rule("schedule-starts-over", severity="warning", phase="optimizer")
def starts_over(case: Case) -> list[Finding]:
    """A cosine schedule has come to its end and goes on: the learning rate climbs back to its start, again and again.

    CosineAnnealingLR is meant for one way down, T_max steps long; restarts have a class of their own. Stepped at every
    batch with T_max in epochs, it swings.
    """
    rates = [value for _, value in case.series("lr/0")]
    for scheduler in case.facts.schedulers:
        period = scheduler.numbers.get("T_max")
        if scheduler.type != "CosineAnnealingLR" or not period or scheduler.steps < 2.5 * period:
            continue
        peak = max(rates, default=0.0)
        ups = sum(1 for a, b in pairwise(rates) if a < 0.5 * peak <= b)
        if peak > 0 and ups >= 2:
            return [
                case.finding(
                    (
                        f"CosineAnnealingLR with T_max={period:g} is stepped {scheduler.steps} times: the learning "
                        f"rate climbs back up {ups} times"
                    ),
                    (
                        "Step it once per epoch if T_max is in epochs, or make T_max epochs * len(loader); for restarts "
                        "on purpose use CosineAnnealingWarmRestarts."
                    ),
                    step=None,
                    site="lr_scheduler",
                    source=scheduler.line or scheduler.made,
                    evidence={"T_max": period, "scheduler_steps": scheduler.steps, "climbs": ups},
                    confidence=0.85,
                )
            ]
    return []


@rule("scheduler-before-optimizer", severity="warning", phase="optimizer")
def order(case: Case) -> list[Finding]:
    """`scheduler.step()` is called before the first `optimizer.step()`: the first value of the schedule is
    skipped, and every other is one step early.
    """
    return [
        case.finding(
            f"{scheduler.type}.step() is called before optimizer.step(): the first learning rate is skipped",
            "Call scheduler.step() after optimizer.step().",
            site="lr_scheduler",
            source=scheduler.line,
            evidence={"scheduler_steps": scheduler.steps},
            confidence=0.9,
        )
        for scheduler in case.facts.schedulers
        if scheduler.before_optimizer and case.steps >= 2 and not _scaled(case) and _has_stepped(case, scheduler)
    ][:1]


def _has_stepped(case: Case, scheduler: SchedulerFact) -> bool:
    k = scheduler.optimizer
    return k is not None and bool(case.facts.optimizers[k].steps)


def _scaled(case: Case) -> bool:
    """A scaler may skip the very first step, and then nothing is out of order."""
    return any(s.enabled for s in case.facts.clipping.scalers)


@rule("scheduler-never-steps", severity="warning")
def never(case: Case) -> list[Finding]:
    """A scheduler was made, the training ran for several epochs to its end, and the scheduler was never stepped."""
    optimizers = case.facts.optimizers
    passes = max((loader.passes for loader in case.facts.loaders), default=0)
    found = []
    schedulers = case.facts.schedulers
    if any(s.steps for s in schedulers):
        return []  # a part of a chain is stepped by the chain
    for scheduler in schedulers:
        steps = optimizers[scheduler.optimizer].steps if scheduler.optimizer is not None else 0
        if steps >= 50 and (passes != 1) and ended_by_itself(case):
            found.append(
                case.finding(
                    f"{scheduler.type} is never stepped: the learning rate stays as it was for all {steps} steps",
                    "Call scheduler.step() after each optimizer step or each epoch, whichever its numbers count.",
                    step=None,
                    site="lr_scheduler",
                    source=scheduler.made,
                    evidence={"optimizer_steps": steps, "scheduler_steps": 0},
                    confidence=0.8,
                )
            )
    return found[:1]


@rule("scheduler-of-another-optimizer", severity="warning")
def other_optimizer(case: Case) -> list[Finding]:
    """A scheduler is stepped whose optimizer never is, while another optimizer is: the schedule has no effect."""
    optimizers = case.facts.optimizers
    busy = [o for o in optimizers if o.steps >= 5]
    found = []
    for scheduler in case.facts.schedulers:
        k = scheduler.optimizer
        idle = k is None or optimizers[k].steps == 0
        if scheduler.steps >= 1 and idle and busy:
            found.append(
                case.finding(
                    f"{scheduler.type} schedules an optimizer that is never stepped",
                    "Make the scheduler with the optimizer that is stepped (after the last time it is made anew).",
                    step=None,
                    site="lr_scheduler",
                    source=scheduler.made,
                    evidence={"scheduler_steps": scheduler.steps},
                    confidence=0.85,
                )
            )
    return found[:1]
