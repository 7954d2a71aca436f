"""Learning-rate schedules: their order, their length, and what they make of the learning rate."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from msgspec import to_builtins

from tensonde.diagnose.analysis.rates import rates, set_at
from tensonde.diagnose.case import Case
from tensonde.diagnose.rule import rule
from tensonde.diagnose.told import ended_by_itself
from tensonde.model.facts import SchedulerFact, WatchedValue
from tensonde.model.finding import Finding
from tensonde.model.site import SourceLine

TWICE = 3.0
"""A rate that was multiplied with a rate is about the square of the one that was asked for."""
AGAIN = 3
"""Schedulers of one line for one optimizer."""


def _base(case: Case, schedulers: list[SchedulerFact]) -> float:
    """The rate that was asked for."""
    asked = [lr for s in schedulers for lr in s.base_lrs[:1]]
    optimizers = case.facts.optimizers
    asked += [float(g.get("initial_lr", 0)) for o in optimizers[:1] for g in o.groups[:1]]
    asked += [float(o.made_with or 0) for o in optimizers[:1]]
    return max(asked, default=0.0)


@rule("learning-rate-never-reached", severity="error", phase="optimizer")
def never_reached(case: Case) -> list[Finding]:
    """The learning rate never comes near the requested one. Either it rises through the whole training and ends far
    below it (a warm-up that is longer than the training; a rate that grows by one factor is a search); or the
    function of a LambdaLR, whose values are multiplied by the rate, returns rates itself, so that two rates are
    multiplied. With a scheduler or by the program's own line.
    """
    schedulers = case.facts.schedulers
    course = [value for _, value in case.series("lr/0")]
    base = _base(case, schedulers)
    line = set_at(case)
    if not (schedulers or line) or len(course) < 10 or base <= 0 or not ended_by_itself(case):
        return []
    twice = next((s for s in schedulers if s.steps and s.type in ("LambdaLR", "MultiplicativeLR")), None)
    squared = twice is not None and base <= 0.1 and base * base / TWICE <= max(course) <= TWICE * base * base
    rising = all(b >= a for a, b in pairwise(course)) and course[-1] > course[0] and not _by_factor(course)
    if not squared and (not rising or course[-1] > 0.5 * base):
        return []
    scheduler = twice if squared else max(schedulers, key=lambda s: s.steps, default=None)
    names = scheduler.names if scheduler is not None else {}
    long = {n: given for n, given in names.items() if given.value > len(course) and given.line}
    name, given = max(long.items(), key=lambda pair: pair[1].value) if long and not squared else ("", None)
    called = scheduler.type if scheduler is not None else "The program's own schedule"
    return [
        case.finding(
            f"{called} multiplies the learning rate of {base:g} by a rate: it is {max(course):.1e} at most"
            if squared
            else f"The warm-up of {scheduler.type if scheduler else 'the program'} never ends: the learning rate gets to {course[-1] / base:.1%} "
            f"of {base:g} in {len(course)} steps",
            "Make its function return a factor, 1 at the beginning (or create the optimizer with lr=1)."
            if squared
            else f"Make the warm-up a small part of the {len(course)} steps"
            + (f" ({name} is {given.value:g})." if given else "."),
            site="lr_scheduler",
            source=(given.line if given else scheduler.made) if scheduler is not None else line,
            evidence={
                "first_lr": course[0],
                "last_lr": course[-1],
                "base_lr": base,
                "steps": len(course),
                "scheduler": scheduler.type if scheduler is not None else None,
            },
            confidence=0.93,
        )
    ]


def _by_factor(course: list[float]) -> bool:
    """Each rate is the one before times the same factor: a search for a rate, no warm-up."""
    factors = [b / a for a, b in pairwise(course) if a > 0]
    return len(factors) == len(course) - 1 and max(factors) - min(factors) < 0.01 * (max(factors) - 1)


@rule("learning-rate-collapses", severity="error", phase="optimizer")
def collapse(case: Case) -> list[Finding]:
    """The learning rate is below a thousandth of its start for more than half of the training: its schedule (a
    scheduler, or the program's own lines) was made for fewer steps (epochs) than there are, for example a schedule in
    epochs that is stepped at every batch. A scheduler that watches a value is judged by its settings: its direction
    (`mode`) and its patience.
    """
    schedulers = [s for s in case.facts.schedulers if s.steps > 1]
    course = rates(case)
    if len(course) < 30 or not (schedulers or case.facts.rates_set or not case.facts.optimizers):
        return []
    peak = max(course)
    low = sum(1 for value in course[course.index(peak) :] if value < 1e-3 * peak)
    if peak <= 0 or low < 0.5 * len(course):
        return []
    scheduler = max(schedulers, key=lambda s: s.steps, default=None)
    if scheduler is not None and scheduler.watched:
        return [_watching(case, scheduler, scheduler.watched, peak, course, low)]
    return [
        case.finding(
            (
                f"{scheduler.type if scheduler else 'The program'} takes the learning rate to {course[-1]:.1e} ({course[-1] / peak:.0e} of its "
                f"peak): {low} of {len(course)} steps hardly move"
            ),
            f"Step {'the scheduler' if scheduler else 'it'} once per epoch if its numbers count epochs, or once per batch if they count batches.",
            step=None,
            site="lr_scheduler",
            source=(scheduler.line or scheduler.made)
            if scheduler
            else set_at(case) or case.facts.by_hand.backward_line,
            evidence={
                "peak_lr": peak,
                "last_lr": course[-1],
                "steps_below_a_thousandth": low,
                "steps": len(course),
                "scheduler_steps": scheduler.steps if scheduler else 0,
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
    """A cosine schedule has reached its end and continues: the learning rate climbs back to its start, again and
    again.

    CosineAnnealingLR is meant for one way down, T_max steps long; restarts have their own class. Stepped at every
    batch with T_max in epochs, it oscillates.
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


@rule("scheduler-out-of-step", severity="warning", phase="optimizer")
def out_of_step(case: Case) -> list[Finding]:
    """A scheduler is not stepped along with the optimizer that is trained. Either it is never stepped, in several
    epochs to the training's end; or it is stepped before the first `optimizer.step()`, so that the first value is
    skipped and every other is one step early; or it belongs to an optimizer that is never stepped; or it is created
    again and again, so that it never gets past its first values. In all but the second case, the schedule has no
    effect.
    """
    found = _idle(case) or _of_another(case) or _made_again(case) or _too_early(case)
    return [found] if found is not None else []


def _told(
    case: Case,
    title: str,
    advice: str,
    source: SourceLine | None,
    evidence: dict[str, Any],
    sure: float,
    *,
    start: bool = False,
) -> Finding:
    return case.finding(
        title, advice, step=0 if start else None, site="lr_scheduler", source=source, evidence=evidence, confidence=sure
    )


def _too_early(case: Case) -> Finding | None:
    if case.steps < 2 or any(s.enabled for s in case.facts.clipping.scalers):
        return None  # a scaler may skip the very first step, and then nothing is out of order
    for scheduler in case.facts.schedulers:
        k = scheduler.optimizer
        if scheduler.before_optimizer and k is not None and case.facts.optimizers[k].steps:
            return _told(
                case,
                f"{scheduler.type}.step() is called before optimizer.step(): the first learning rate is skipped",
                "Call scheduler.step() after optimizer.step().",
                scheduler.line,
                {"scheduler_steps": scheduler.steps},
                0.9,
                start=True,
            )
    return None


def _idle(case: Case) -> Finding | None:
    optimizers, schedulers = case.facts.optimizers, case.facts.schedulers
    passes = max((loader.passes for loader in case.facts.loaders), default=0)
    if any(s.steps for s in schedulers):
        return None  # a part of a chain is stepped by the chain
    for scheduler in schedulers:
        steps = optimizers[scheduler.optimizer].steps if scheduler.optimizer is not None else 0
        if steps >= 50 and passes != 1 and ended_by_itself(case):
            return _told(
                case,
                f"{scheduler.type} is never stepped: the learning rate stays as it was for all {steps} steps",
                "Call scheduler.step() after each optimizer step or each epoch, whichever its numbers count.",
                scheduler.made,
                {"optimizer_steps": steps, "scheduler_steps": 0},
                0.8,
            )
    return None


def _of_another(case: Case) -> Finding | None:
    optimizers = case.facts.optimizers
    busy = [o for o in optimizers if o.steps >= 5]
    for scheduler in case.facts.schedulers:
        k = scheduler.optimizer
        if scheduler.steps >= 1 and busy and (k is None or optimizers[k].steps == 0):
            return _told(
                case,
                f"{scheduler.type} schedules an optimizer that is never stepped",
                "Create the scheduler with the optimizer that is stepped (after the optimizer is created for the last time).",
                scheduler.made,
                {"scheduler_steps": scheduler.steps},
                0.85,
            )
    return None


def _made_again(case: Case) -> Finding | None:
    """By one line for one optimizer, each stepped a few times, and the rate is the same throughout."""
    course = [value for _, value in case.series("lr/0")]
    made: dict[tuple[SourceLine, int], list[SchedulerFact]] = {}
    for scheduler in case.facts.schedulers:
        if scheduler.made is not None and scheduler.optimizer is not None and scheduler.steps:
            made.setdefault((scheduler.made, scheduler.optimizer), []).append(scheduler)
    for (line, k), group in made.items():
        if len(group) >= AGAIN and len(course) >= 30 and len(set(course)) == 1 and case.facts.optimizers[k].steps >= 30:
            return _told(
                case,
                f"{group[0].type} is created again and again ({len(group)} times or more): the learning rate stays at {course[0]:g}",
                "Create the scheduler once, before the loop, and step that one.",
                line,
                {"made": len(group), "steps_of_each": group[0].steps, "lr": course[0]},
                0.9,
            )
    return None
