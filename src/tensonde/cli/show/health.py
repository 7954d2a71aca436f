"""Questions and their answers, as rows of a table."""

from __future__ import annotations

from typing import Literal

from rich.text import Text

from tensonde.diagnose.analysis.health import Health

_MARKS = {"ok": ("✓", "green"), "problem": ("✗", "bold red"), "unknown": ("?", "yellow")}
Row = tuple[Text | str, ...]


def answer_row(state: Literal["ok", "problem", "unknown"], question: str, answer: str) -> Row:
    mark, style = _MARKS[state]
    return Text(mark, style=style), question, answer


def health_rows(asked: list[Health]) -> list[Row]:
    return [
        answer_row(row.state, row.question, row.answer + (f" at {row.where}" if row.where else "")) for row in asked
    ]
