"""Divisions in the user's source, as facts hold them."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

from tensonde.program.divisions import large_divisions, step_divisions
from tensonde.program.frames import is_user
from tensonde.program.lines import line_at

MOST = 32
MOST_IN_STEP = 16


def divisions(files: Iterable[str]) -> list[dict[str, Any]]:
    """By large constants: the line, the number, and the function that the line is in."""
    return [
        {"line": line_at(path, number), "by": by, "function": owner}
        for path in files
        for number, by, owner in large_divisions(path)
    ][:MOST]


def divisions_of_step(optimizer: Any) -> list[dict[str, Any]]:
    """In the class of an optimizer that the user wrote, with their kind."""
    step = inspect.unwrap(getattr(type(optimizer), "step", None) or divisions)
    code = getattr(step, "__code__", None)
    if code is None or not is_user(code):
        return []
    return [{"kind": kind, **line_at(code.co_filename, number)} for kind, number in step_divisions(code)][:MOST_IN_STEP]
