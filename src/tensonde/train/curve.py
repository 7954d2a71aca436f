"""A schedule played through before the training: its learning rates, and the usual mistakes in them.

The scheduler is stepped without the training, and then it and its optimizer are put back as they were.
"""

from __future__ import annotations

import copy
import warnings
from itertools import pairwise
from typing import Any, NamedTuple


class Curve(NamedTuple):
    """`rates[k]` are the learning rates of step k, one per group; `stopped` is what the scheduler raised, if it did;
    `changes` is the step of the scheduler at which they first change, maybe beyond the curve, and None for a constant schedule."""

    rates: list[list[float]]
    base: float
    stopped: str = ""
    changes: int | None = None


FAR = 1000
"""A schedule that does not change in this many steps and ten times the training is meant to be constant."""


def schedule_curve(scheduler: Any, steps: int) -> Curve:
    """The learning rates of `steps` optimizer steps, the scheduler being stepped after each; see `stretched`."""
    optimizer = scheduler.optimizer
    groups = [{name: value for name, value in group.items() if name != "params"} for group in optimizer.param_groups]
    parts = parts_of(scheduler)
    kept = [copy.deepcopy({n: v for n, v in vars(part).items() if _plain(v)}) for part in parts]
    kept_groups = copy.deepcopy(groups)
    rates: list[list[float]] = []
    stopped, changes = "", None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for step in range(steps):
                rates.append([float(group["lr"]) for group in optimizer.param_groups])
                if step + 1 < steps:
                    scheduler.step()
            changes = _first_change(scheduler, rates)
    except Exception as problem:
        stopped = ": ".join([type(problem).__name__, *str(problem).splitlines()[:1]])
    finally:
        for part, state in zip(parts, kept, strict=True):
            vars(part).update(state)
        for group, values in zip(optimizer.param_groups, kept_groups, strict=True):
            group.update(values)
    base = max((float(group.get("initial_lr", group["lr"])) for group in kept_groups), default=0.0)
    return Curve(rates, base, stopped, changes)


def _first_change(scheduler: Any, rates: list[list[float]]) -> int | None:
    """Plays a schedule that has not changed yet on until it does."""
    found = next((k for k, row in enumerate(rates) if row != rates[0]), None)
    if found is not None:
        return found
    try:
        for step in range(len(rates), FAR + 10 * len(rates)):
            scheduler.step()
            if [float(group["lr"]) for group in scheduler.optimizer.param_groups] != rates[0]:
                return step
    except Exception:
        return None  # beyond the training nothing need work
    return None


def stretched(curve: Curve, steps: int, every: int) -> Curve:
    """From a curve with one entry per step of the scheduler, one with an entry per step of the optimizer."""
    needed = -(-steps // every)
    rates = [curve.rates[k // every] for k in range(steps) if k // every < len(curve.rates)]
    return Curve(rates, curve.base, curve.stopped if needed > len(curve.rates) else "", curve.changes)


def parts_of(scheduler: Any) -> list[Any]:
    """It and those that it is made of (SequentialLR, ChainedScheduler)."""
    found = [scheduler]
    for part in getattr(scheduler, "_schedulers", []):
        found += parts_of(part)
    return found


def _plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_plain, value))
    return value is None or isinstance(value, bool | int | float | str) or type(value).__name__ == "Counter"


def check_schedule(curve: Curve) -> list[str]:
    """The mistakes, one sentence each; of the first group, where they show."""
    rates, base = [groups[0] for groups in curve.rates if groups], curve.base
    found = []
    count = len(rates)
    if curve.stopped:
        found.append(f"It raises after step {count - 1}: {curve.stopped}")
    if count < 2:
        return found
    peak = max(rates)
    if min(rates) < 0:
        found.append(f"The learning rate is negative at step {next(k for k, r in enumerate(rates) if r < 0)}.")
    zeros = next((k for k, rate in enumerate(rates) if rate > 0), count)
    if zeros > 1:  # many a warm-up begins with one
        found.append(f"The learning rate is 0 in the first {zeros} steps, which change nothing.")
    if peak <= 0:
        return found
    if all(rate == rates[0] for rate in rates):
        if curve.changes is not None:
            found.append(
                f"It never changes in {count} steps: it first does after {curve.changes} steps of the scheduler. Does it count "
                "epochs or batches, and is it made for a longer training?"
            )
        return found
    rising = all(b >= a for a, b in pairwise(rates))
    if rising and base and rates[-1] < 0.5 * base:
        found.append(f"It still warms up at the end: it gets to {rates[-1]:.2e}, {rates[-1] / base:.0%} of {base:g}.")
    low = sum(rate < 1e-3 * peak for rate in rates[rates.index(peak) :])
    if low > 0.5 * count:
        found.append(
            f"{low} of {count} steps have less than a thousandth of the peak: are its numbers in epochs, and is it stepped at "
            "every batch?"
        )
    return found + _returns(rates)


def _returns(rates: list[float]) -> list[str]:
    """A cosine that was made for fewer steps comes back up, once, and slowly; restarts jump, and are meant."""
    bottom = min(range(len(rates)), key=lambda k: rates[k])
    fall, rise = rates[:bottom], rates[bottom:]
    slow = all(b >= a and b - a < 0.25 * max(rates) for a, b in pairwise(rise))
    if (
        fall
        and len(rise) > 2
        and slow
        and rise[-1] > max(10 * rates[bottom], 0.05 * max(rates))
        and max(fall) > rise[0]
    ):
        return [
            f"It is lowest at step {bottom} and then rises again to {rise[-1]:.2e}: it was made for {bottom} steps, and the "
            f"training has {len(rates)}."
        ]
    return []
