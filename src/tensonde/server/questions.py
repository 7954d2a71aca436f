"""The health of a training as its experiments found it: each question with its answer and the numbers behind it."""

from __future__ import annotations

from typing import Any

from tensonde.diagnose.analysis.health import health
from tensonde.diagnose.case import Case
from tensonde.program.lines import to_json
from tensonde.server.place import Place
from tensonde.store.files import plain
from tensonde.store.reader import Rank

Json = dict[str, Any]


def questions(place: Place) -> list[Json]:
    """In the order in which they are asked; none where nothing was recorded."""
    if place.recorded is None:
        return []
    case = Case(Rank(place.recorded.folder))
    told = {(answer.question, answer.step, answer.healthy): answer for answer in reversed(case.facts.answers)}
    found = []
    for row in health(case):
        answer = told.get((row.question, row.step, False)) or told.get((row.question, row.step, True))
        found.append(
            {
                "question": row.question, "state": row.state, "answer": row.answer, "step": row.step,
                "source": to_json(answer.line) if answer is not None and row.where else None,
                "module": answer.module if answer is not None else "",
                "evidence": plain(answer.numbers) if answer is not None else {},
                "names": list(answer.names) if answer is not None else [],
            }
        )  # fmt: skip
    return found
