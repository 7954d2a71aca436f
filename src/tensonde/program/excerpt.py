"""A few lines of the user's source around a finding's."""

from __future__ import annotations

import linecache

from tensonde.model.site import SourceLine

AROUND = 1
"""Lines before and after."""


def excerpt(source: SourceLine, around: int = AROUND) -> list[tuple[int, str, bool]]:
    """(number, text, whether it is the line itself); empty where the file is gone or has changed since."""
    try:
        with open(source.file, encoding="utf-8", errors="replace") as file:
            lines = file.read().splitlines()
    except OSError:
        lines = [line.rstrip("\n") for line in linecache.getlines(source.file)]  # a notebook cell
    if not 1 <= source.line <= len(lines) or (source.code and lines[source.line - 1].strip() != source.code):
        return []
    first, last = max(1, source.line - around), min(len(lines), source.line + around)
    shown = [(number, lines[number - 1].rstrip(), number == source.line) for number in range(first, last + 1)]
    margin = min((len(text) - len(text.lstrip()) for _, text, _ in shown if text.strip()), default=0)
    return [(number, text[margin:], marked) for number, text, marked in shown]
