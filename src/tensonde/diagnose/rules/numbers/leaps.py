"""A loss that leaps for a step."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from statistics import median

from tensonde.diagnose.analysis.divergence import Raise, grown_weight, raised
from tensonde.diagnose.analysis.leap import (
    BEFORE,
    MANY,
    Leap,
    OddValues,
    batch_finding,
    calm_before,
    leaps,
    odd_values,
    traced,
)
from tensonde.diagnose.case import Case
from tensonde.diagnose.rule import rule
from tensonde.diagnose.told import backward_line
from tensonde.model.finding import Finding

FAR = 1e6
"""Times all losses before: told even where nothing explains it."""
ONCE = 100.0
"""The same after many steady losses, where nothing like it comes again."""
AFTER = 20
"""Losses after a leap that tell whether it was one step, or another loss from there on."""
BACK = 0.1
WEIGHTS = 10.0


@dataclass(frozen=True, slots=True)
class Told:
    """A leap that is worth telling; `odd` are the values that explain it, `back` whether the loss came back."""

    leap: Leap
    odd: OddValues | None = None
    back: bool = False


def _told(case: Case) -> Told | None:
    series = case.series("loss")
    for leap in leaps(series):
        after = [value for step, value in series if step > leap.step]
        if not all(map(isfinite, after[:AFTER])):
            return None
        trace = traced(case, leap.step)
        odd = odd_values(case, trace, leap) if trace is not None else None
        if odd is not None and (odd.layer or leap.times >= FAR):
            return Told(leap, odd)
        back = not after or median(map(abs, after[:AFTER])) < BACK * leap.value
        far = leap.times >= FAR and leap.seen >= BEFORE
        if _happens_once(leap, after) or (far and (back or grown_weight(case, leap.step, case.steps) >= WEIGHTS)):
            return Told(leap, back=back)
    return None


@rule("batch-out-of-scale", severity="error", phase="data", explains=("exception", "nonfinite", "watchpoint"))
def out_of_scale(case: Case) -> list[Finding]:
    """The loss of one step is at least twenty times the largest before it, and the model's inputs were far larger
    than in other steps: a hundred times, or twenty after steady losses. That batch is out of scale. If it ends in NaN
    or Inf, `nan-origin` reports it.
    """
    told = _told(case)
    return (
        [batch_finding(case, told.leap.step, told.odd, told.leap)] if told is not None and told.odd is not None else []
    )


@rule("loss-spike", severity="warning", phase="forward", unless=("batch-out-of-scale", "lbfgs-without-line-search"))
def spike(case: Case) -> list[Finding]:
    """The loss of one step is a million times everything before it, the inputs do not explain it
    (`batch-out-of-scale`), and it either comes back afterwards or has thrown weights off; if the loss changes its
    nature from there on, it is not a spike. A hundred times is enough after fifty steady losses, if the loss is back
    within five steps and never comes near again. The first rewards of an agent recur, and noisy, adversarial and
    heavy-tailed losses are not steady. If it ends in NaN or Inf, `nan-origin` reports it.
    """
    told = _told(case)
    return [_spike(case, told.leap, raised(case, told.leap.step), back=told.back)] if told is not None else []


def _happens_once(leap: Leap, after: list[float]) -> bool:
    return (
        leap.times >= ONCE
        and leap.steady(MANY)
        and len(after) > MANY // 2
        and all(abs(value) < BACK * leap.value for value in after[5:])
    )


def _spike(case: Case, leap: Leap, raise_: Raise | None, *, back: bool) -> Finding:
    calm = calm_before(case, leap.step)
    cause = (
        f" after the learning rate was raised from {raise_.before:g} to {raise_.after:g}"
        if raise_
        else " while the weights hardly changed: its batch or its targets differ"
        if calm
        else ""
    )
    return case.finding(
        f"The loss jumps from at most {leap.before:.3g} to {leap.value:.3g} in one step{cause}",
        (
            "Lower the rate, or raise it over many steps."
            if raise_
            else "Look at the batch of this step, and at what the loss divides by; clipping the gradients limits what one step can do to the weights."
        ),
        step=leap.step,
        site="loss:value",
        source=(raise_.source if raise_ else None) or backward_line(case),
        evidence={
            "loss": leap.value,
            "largest_before": leap.before,
            "times": leap.times,
            "comes_back": back,
            "weights_calm": calm,
        },
        confidence=0.8,
    )
