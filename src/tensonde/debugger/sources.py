"""The user's source: excerpts around a line."""

from __future__ import annotations

import linecache

from tensonde.debugger.terminal import Piece


def excerpt(file: str, first: int, last: int, current: int | None) -> list[list[Piece]]:
    """Numbered lines, with the current one marked; empty where there is no such source."""
    linecache.checkcache(file)
    shown: list[list[Piece]] = []
    for number in range(max(first, 1), last + 1):
        text = linecache.getline(file, number)
        if not text:
            break
        here = number == current
        mark: Piece = ("→", "title") if here else " "
        shown.append([" ", mark, (f" {number:>5}  ", "dim"), (text.rstrip(), "title" if here else "")])
    return shown
