"""Weights that run away before the loss shows it."""

from __future__ import annotations

from statistics import median

from tensonde.diagnose.analysis.divergence import left_range, optimizer_line
from tensonde.diagnose.case import Case
from tensonde.diagnose.rule import rule
from tensonde.model.finding import Finding
from tensonde.watch.announcing import RUNAWAY, grown

_LAST = 10
_ROSE = 1.5
"""Times that the learning rate must have grown in the steps before, to be named."""


@rule(
    "weight-runaway",
    severity="warning",
    phase="optimizer",
    unless=("nan-origin", "learning-rate-too-large", "batch-out-of-scale", "loss-spike"),
    explains=("watchpoint",),
)
def runs_away(case: Case) -> list[Finding]:
    """A weight grew by 12 % in ten steps, faster than before, while the loss no longer fell (`weight_runaway`; a line on standard
    error said so at once), and the loss left its range afterwards: it exceeds the best thirty losses in a row by more than they differ
    among themselves, and stays there. The finding names the weight that began. It is silent where the loss came back, or left its range before the weight grew."""
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
                f"The learning rate had grown from {usual:g} to {rates[-1][1]:g} by then: keep it at what the training was calm with."
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
