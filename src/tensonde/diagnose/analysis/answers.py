"""Answers of experiments, over the steps that were asked."""

from __future__ import annotations

from tensonde.diagnose.case import Case
from tensonde.model.facts import AnswerFact


def answers(case: Case, experiment: str) -> list[AnswerFact]:
    """Those that tell something, in the order of steps."""
    return [a for a in case.facts.answers if a.experiment == experiment and a.healthy is not None]


def steadily(case: Case, experiment: str, *, times: int = 2) -> list[AnswerFact]:
    """What is amiss in each of the last steps that were asked, so many at least: one answer for each place, the last."""
    found = answers(case, experiment)
    steps = sorted({a.step for a in found})[-times:]
    if len(steps) < times:
        return []
    last = [a for a in found if a.step == steps[-1] and a.healthy is False]
    return [
        answer
        for answer in last
        if all(any(_same(answer, other) for other in found if other.step == step) for step in steps[:-1])
    ]


def _same(a: AnswerFact, b: AnswerFact) -> bool:
    return b.healthy is False and (a.part, a.op, a.names[:1]) == (b.part, b.op, b.names[:1]) and (
        (a.line and a.line.line) == (b.line and b.line.line)
    )  # fmt: skip
