"""What a training has learnt so far, by its losses and by the constants that experiments have found."""

from __future__ import annotations

from itertools import pairwise
from math import isfinite, sqrt
from statistics import mean, stdev

from tensonde.diagnose.analysis.answers import answers
from tensonde.diagnose.case import Case
from tensonde.model.facts import AnswerFact
from tensonde.model.site import SourceLine as Line

FEWEST = 40
"""Steps before anything is said."""
NO_BETTER = 0.95
"""Of the loss of the best constant. Healthy programs are at 0.005 to 0.86, mistaken ones at 0.95 to 4.7."""


def where_they_part(case: Case) -> Line | None:
    """Where the ways of inputs and targets part in the program's text; None where a plain learner finds the targets by the inputs, so that they belong together."""
    if any(a.healthy for a in answers(case, "pairs")):
        return None
    return next(
        (a.line for a in reversed(case.facts.answers) if a.experiment == "nothing-learnt" and a.part == "parting"), None
    )


def best_constant(answer: AnswerFact) -> float:
    return max(answer.numbers["constant"], answer.numbers.get("earlier_constant", 0.0))


def micro_batches(case: Case, told: list[AnswerFact]) -> int:
    """What losses are divided by where gradients add up: the recording has them as the criterion gave them, and steps are asked with what is differentiated."""
    recorded = dict(case.series("loss"))
    for answer in reversed(told):
        ratio = recorded.get(answer.step, 0.0) / (answer.numbers["loss"] or 1.0)
        number = round(ratio) if isfinite(ratio) else 0
        if number >= 1 and abs(ratio - number) <= 1e-3 * number:
            return number
    return 1


def at_rest(losses: list[float]) -> bool:
    """The loss of the last quarter is not below that of the third, but for chance. What one loss differs from the next is chance, and no
    more than that: a loss that falls steadily is not noisy."""
    part = len(losses) // 4
    third, last = losses[2 * part : 3 * part], losses[3 * part :]
    chance = min(stdev(losses[2 * part :]), stdev(b - a for a, b in pairwise(losses[2 * part :])) / sqrt(2))
    noise = chance * sqrt(1 / len(third) + 1 / len(last))
    return mean(third) - mean(last) < max(3 * noise, 0.01 * abs(mean(third)))
