"""Weights that run away before the loss shows it, and losses that have no floor."""

from __future__ import annotations

from itertools import pairwise
from math import isfinite, prod
from statistics import mean, median

from tensonde.diagnose.analysis.divergence import left_range, optimizer_line
from tensonde.diagnose.case import Case
from tensonde.diagnose.rule import rule
from tensonde.model.finding import Finding
from tensonde.watch.announcing import RUNAWAY, grown

_LAST = 10
_ROSE = 1.5
"""Times that the learning rate must have grown in the steps before, to be named."""
FEWEST, BELOW = 60, 1000.0
"""Steps; times its first size that a loss without a floor falls below 0."""


@rule(
    "weight-runaway",
    severity="warning",
    phase="optimizer",
    unless=("nan-origin", "learning-rate-too-large", "batch-out-of-scale", "loss-spike"),
    explains=("watchpoint",),
)
def runs_away(case: Case) -> list[Finding]:
    """A weight grew by 12 % in ten steps, faster than before, while the loss no longer fell (`weight_runaway`; a line
    on standard error said so at once), and the loss left its range afterwards: it exceeds the best thirty losses in a
    row by more than they differ among themselves, and stays there. The finding names the weight that began. Silent if
    the loss came back, or left its range before the weight grew.
    """
    hits = [hit for hit in case.rank.hits if hit.condition == RUNAWAY]
    series = case.series("loss")
    left = left_range([value for _, value in series]) if hits else None
    if left is None or any(value <= left.limit for _, value in series[left.step :][-_LAST:]):
        return []
    first = min(hits, key=lambda hit: hit.moment.step)
    begun, shown = first.moment.step, series[left.step][0]
    if begun >= shown:
        return []  # the weight answers to what the loss shows: other data, say
    name = first.site.rpartition(":")[0]
    sites = {hit.site for hit in hits}
    rates = [(step, rate) for step, rate in case.series("lr/0") if step <= begun]
    usual = median(rate for _, rate in rates[: len(rates) // 2 + 1]) if rates else 0.0
    rose = bool(rates) and 0 < usual * _ROSE < rates[-1][1]
    return [
        case.finding(
            f"The training diverges from step {begun} on: {name} grew by {grown(first):.0%} in 10 steps while the loss no longer "
            f"fell; {shown - begun} steps later the loss left its range",
            (
                f"The learning rate had grown from {usual:g} to {rates[-1][1]:g} by then: keep it at a value at which the training was stable."
                if rose
                else "Lower the learning rate or the momentum, clip the gradients' norm, or let the weights decay."
            ),
            step=begun,
            site=first.site,
            source=optimizer_line(case),
            evidence={
                "growth": grown(first),
                "loss_before": left.before,
                "loss_limit": left.limit,
                "loss_left_at_step": shown,
                "weights": len(sites),
                "lr": rates[-1][1] if rates else None,
            },
            confidence=0.85,
        )
    ]


@rule("loss-without-floor", severity="error", phase="forward", unless=("nan-origin",))
def no_floor(case: Case) -> list[Finding]:
    """The loss is below 0, falls faster in its second half than in its first, and ends a thousand times as far below
    0 as it was large at first: nothing bounds it, for example because a sign is wrong, or a minimum is used for a
    maximum. Densities and similarities also fall below 0, but slow down. Silent if several optimizers take turns.
    """
    losses = [value for _, value in case.series("loss")]
    if len(losses) < FEWEST or len(case.stepping) != 1 or not all(map(isfinite, losses)):
        return []
    part = len(losses) // 4
    quarters = [mean(losses[k * part : (k + 1) * part]) for k in range(4)]
    falls = [after - before for before, after in pairwise(quarters)]
    size = max(1.0, abs(losses[0]))
    if quarters[3] > -BELOW * size or max(falls) >= 0 or not max(falls[1:]) < falls[0]:
        return []
    trace = case.first
    made = (
        [op for op in trace.ops if op.outputs and prod(op.outputs[0].shape) == 1 and op.outputs[0].requires_grad]
        if trace
        else []
    )
    return [
        case.finding(
            f"The loss has no floor: it falls from {losses[0]:.3g} to {losses[-1]:.3g}, faster in the second half than before",
            "Check the sign of each term, and what was meant to be maximized: a loss that is minimized must have a lower bound.",
            step=len(losses) - 1,
            at=made[-1] if made else None,
            site=None if made else "loss:value",
            evidence={"first": losses[0], "quarters": quarters},
            confidence=0.9,
        )
    ]
