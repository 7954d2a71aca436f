"""L-BFGS that takes its whole step whatever comes of it."""

from __future__ import annotations

from itertools import groupby
from math import isfinite

from tensonde.diagnose.case import Case
from tensonde.diagnose.rule import rule
from tensonde.model.finding import Finding

LEAP = 1e3
"""Times that the loss must have grown within one step of the optimizer, on one batch."""


@rule(
    "lbfgs-without-line-search", severity="error", phase="optimizer", explains=("exception", "nonfinite", "watchpoint")
)
def runs_away(case: Case) -> list[Finding]:
    """L-BFGS evaluates the loss several times per step, on the same batch. Without a line search (`line_search_fn` is
    None), it takes the full quasi-Newton step even if that leads uphill. Reported if the loss, finite at the start of
    a step, grows a thousandfold or overflows inside it: only the optimizer's own moves have changed anything
    meanwhile. If it comes back before the step ends, that was luck, and the finding is a warning.
    """
    stepping = case.stepping
    if len(stepping) != 1 or stepping[0].type != "LBFGS" or stepping[0].groups[0].get("line_search_fn"):
        return []
    for step, group in groupby(case.series("loss"), key=lambda pair: pair[0]):
        losses = [abs(value) for _, value in group]
        if len(losses) < 2 or not isfinite(losses[0]):
            continue
        limit = LEAP * max(losses[0], 1e-6)
        peak = next((value for value in losses if not value < limit), None)
        if peak is None:
            continue
        back = isfinite(losses[-1]) and losses[-1] < limit
        rate = stepping[0].groups[0].get("lr")
        return [
            case.finding(
                (
                    f"L-BFGS without a line search runs away: within one step, the loss goes from {losses[0]:.3g} "
                    f"to {peak:.3g}" + (" and back" if back else "")
                ),
                'Give it line_search_fn="strong_wolfe", or a much smaller lr.',
                severity="warning" if back else "error",
                step=step,
                source=stepping[0].made,
                evidence={"losses": [f"{value:.4g}" for value in losses[:8]], "lr": rate, "line_search_fn": None},
                confidence=0.9,
            )
        ]
    return []
