"""Values that were not finite before a traced step took them: the line of the program that made them, while its frames are there."""

from __future__ import annotations

import os
import sys
from typing import Any

from torch import Tensor

from tensonde.adapters.torch.observers.making import made_line
from tensonde.program.habits import may_overflow
from tensonde.program.lines import Json, line_at
from tensonde.program.writes import spoiled_later


def makers(tensors: list[tuple[int, Tensor]]) -> list[dict[str, Any]]:
    """Of each tensor (with its number in the trace) the expression that may have made it so, else the one that made it."""
    frame = sys._getframe(1)
    found = []
    for number, tensor in tensors[:4]:
        line = made_line(tensor, frame, may_overflow) or made_line(tensor, frame)
        if line is not None:
            found.append({"tensor": number, "line": _written(line)})
    return found


def _written(made: Json) -> Json:
    """Where NaN is written into what that line made, if the program says so."""
    path = os.path.abspath(made["file"])
    line = spoiled_later(path, made["line"])
    return made if line is None else line_at(path, line)
