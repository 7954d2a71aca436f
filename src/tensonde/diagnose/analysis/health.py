"""The questions that experiments asked of a training, each with its latest answer: the health table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tensonde.diagnose.case import Case
from tensonde.model.facts import AnswerFact
from tensonde.store.reader import Recording

SETTLED = 40
"""Steps from which on an answer about learning says something of the training, and not of its beginning."""
_GROWING = ("nothing-learnt", "reach", "dead-ends", "sameness", "own-batch")
"""Questions that a training answers as it goes on."""


@dataclass(frozen=True, slots=True)
class Health:
    """`unknown`: it was not asked, or it is too early to tell; `answer` says which."""

    question: str
    state: Literal["ok", "problem", "unknown"]
    answer: str
    where: str
    step: int


def health(case: Case) -> list[Health]:
    """In the order in which the questions are asked."""
    found: dict[str, list[AnswerFact]] = {}
    for answer in case.facts.answers:
        if answer.experiment:
            found.setdefault(answer.experiment, []).append(answer)
    table = [_row(name, told) for name, told in found.items()]
    declined = [answer for answer in case.facts.answers if not answer.experiment]
    if declined and not table:
        last = declined[-1]
        table.append(Health("experiments", "unknown", f"not asked: {last.why}", "", last.step))
    return table


def health_of(recording: Recording) -> list[Health]:
    """Of the process that got furthest, where a launcher started several."""
    if not recording.ranks:
        return []
    return health(Case(max(recording.ranks, key=lambda rank: int(rank.session.get("steps") or 0))))


def _row(name: str, told: list[AnswerFact]) -> Health:
    known = [answer for answer in told if answer.healthy is not None]
    if not known:
        return Health(told[-1].question, "unknown", f"not asked: {told[-1].why}", "", told[-1].step)
    latest = [answer for answer in known if answer.step == known[-1].step]
    wrong = [answer for answer in latest if not answer.healthy]
    shown = (wrong or latest)[0]
    early = bool(wrong) and name in _GROWING and shown.step < SETTLED
    text = "; ".join(dict.fromkeys(answer.why for answer in (wrong or latest)))
    return Health(
        shown.question,
        "unknown" if early else "problem" if wrong else "ok",
        text + (f" (after {shown.step} steps: too early to tell)" if early else ""),
        str(shown.line) if wrong and shown.line is not None else "",
        shown.step,
    )
