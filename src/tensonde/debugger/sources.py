"""The user's source: excerpts around a line, and which frames of the stack are the user's."""

from __future__ import annotations

import linecache
from types import FrameType

from tensonde.debugger.terminal import Piece
from tensonde.program.frames import USER, owner_of_file


def is_user_file(path: str) -> bool:
    if path.startswith("<"):  # made by exec, of which only a notebook's cells have source
        return not path.startswith("<frozen") and bool(linecache.getlines(path))
    return owner_of_file(path) == USER


def user_frames(frame: FrameType | None) -> list[FrameType]:
    """Frames of the user's own code, innermost first."""
    found = []
    while frame is not None:
        if is_user_file(frame.f_code.co_filename):
            found.append(frame)
        frame = frame.f_back
    return found


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
