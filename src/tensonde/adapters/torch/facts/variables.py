"""The user's variable that holds a thing, and where it got its value."""

from __future__ import annotations

from types import FrameType
from typing import Any

from tensonde.adapters.torch.facts import syntax
from tensonde.adapters.torch.facts.origins import line_at
from tensonde.adapters.torch.frames import is_user


def holder(frame: FrameType | None, thing: object) -> dict[str, Any] | None:
    """The outermost variable, from `frame` on, that is this very thing and was assigned (an argument was not): name and line."""
    found = None
    while frame is not None:
        if is_user(frame.f_code):
            path = frame.f_code.co_filename
            for name in [name for name, value in frame.f_locals.items() if value is thing]:
                number = syntax.assignment(path, name, before=frame.f_lineno)
                if number:
                    found = {"name": name, "line": line_at(path, number)}
        frame = frame.f_back
    return found
