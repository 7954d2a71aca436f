"""Updates that go too far, seen before the loss shows it."""

from __future__ import annotations

from math import isfinite
from statistics import median

from tensonde.diagnose.case import Case
from tensonde.diagnose.rule import rule
from tensonde.model.finding import Finding

_AROUND = 10
_WORSE = 3.0
"""Times that the loss must have grown after the warning for it to be more than a note."""


@rule("updates-too-long", severity="warning", phase="optimizer")
def too_long(case: Case) -> list[Finding]:
    """The gradient after an update tells how the loss would go on along it. In most of the last 24 updates it would have risen, by
    some hundredths of the loss each: the updates had gone past the lowest point of their own line. While the training ran, a line on
    standard error said so. It is a warning where the loss has grown threefold since or is no longer finite, and else a note: many
    trainings live near this edge."""
    fact = case.facts.overshoot
    if fact is None or not fact.rise:
        return []
    losses = case.series("loss")
    before = [abs(value) for step, value in losses if step <= fact.step and isfinite(value)][-_AROUND:]
    after = [abs(value) for step, value in losses if step > fact.step]
    finite = [value for value in after if isfinite(value)]
    bad = len(finite) < len(after)
    worse = bool(before) and len(finite) >= _AROUND and median(finite[-_AROUND:]) > _WORSE * median(before)
    optimizer = case.facts.optimizers[fact.optimizer] if fact.optimizer is not None else None
    left = next(
        (step for step, value in losses if step > fact.step and before and not abs(value) <= 2 * max(before)), None
    )
    told = f"; the loss left its range {left - fact.step} steps later" if (bad or worse) and left is not None else ""
    return [
        case.finding(
            f"The last {fact.updates} updates before step {fact.step} went too far: going on would have raised the loss by "
            f"{100 * float(fact.rise):.0f} % each{told}",
            f"The learning rate of {fact.lr:g} is too large for the curvature here: lower it, warm it up over more steps, or clip the gradient's norm."
            if fact.lr is not None
            else "The steps are too long for the curvature here: lower the learning rate, or clip the gradient's norm.",
            step=fact.step,
            severity="warning" if bad or worse else "info",
            source=optimizer.made if optimizer is not None else None,
            evidence={
                "rise": fact.rise,
                "share": fact.share,
                "updates": fact.updates,
                "lr": fact.lr,
                "loss": fact.loss,
            },
            confidence=0.8 if bad or worse else 0.5,
        )
    ]
