"""The learning rate of each step: an optimizer's, or that of updates which the program makes itself."""

from __future__ import annotations

from statistics import median

from tensonde.diagnose.case import Case
from tensonde.model.site import SourceLine

FLAT = 0.02
"""A mean this much smaller than the values are is rounding."""


def rates(case: Case) -> list[float]:
    """Of the first group of the optimizer whose steps are counted, or of the program's own updates."""
    return [value for _, value in case.series("lr/0")] or [abs(rate) for _, rate in own_rates(case)]


def set_at(case: Case) -> SourceLine | None:
    """The program's line that sets the rate of a group, where there is only one."""
    lines = case.facts.rates_set
    return lines[0].source if len(lines) == 1 else None


def own_rates(case: Case) -> list[tuple[int, float]]:
    """The learning rate of each step of updates that the program makes itself, `p -= lr * p.grad`: negative where it goes up the gradient. Empty where
    updates are something else.

    The mean of a weight, which is known after each update, moves by the rate times the mean of its gradient."""
    if case.facts.optimizers or not case.facts.by_hand.updates:
        return []
    found: dict[int, list[float]] = {}
    for name in case.facts.parameters:
        values = {row["step"]: row["mean"] for row in case.digests(f"{name}:value", ("step", "mean"))}
        for row in case.digests(f"{name}:grad", ("step", "mean", "absmean")):
            step, mean = row["step"], row["mean"]
            if step in values and step - 1 in values and abs(mean) > FLAT * row["absmean"] > 0:
                found.setdefault(step, []).append((values[step - 1] - values[step]) / mean)
    rates = []
    for step, given in sorted(found.items()):
        usual = median(given)
        if len(given) >= 2 and max(given) - min(given) <= 0.1 * abs(usual):
            rates.append((step, usual))
    return rates if len(rates) >= max(5, len(found) // 2) else []
