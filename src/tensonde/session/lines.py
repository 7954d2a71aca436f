"""Whether there can be a breakpoint on a line."""

from __future__ import annotations

import os

from tensonde.errors import UsageError
from tensonde.program.stopping import code_lines, other_tracer


def check_line(file: str, line: int) -> None:
    """In the training thread. Raises UsageError where that line is known to have no code, or its debugger is another one."""
    other = other_tracer()
    if other:
        raise UsageError(
            f"{other} has the interpreter's trace function, which a breakpoint on a line needs; set it there."
        )
    lines = code_lines(file)
    if lines and line not in lines:
        nearest = min(lines, key=lambda candidate: (abs(candidate - line), -candidate))
        name = os.path.basename(file)
        raise UsageError(
            f"{name}:{line} has no code; the nearest line that has is {nearest}: `break {name}:{nearest}`."
        )
