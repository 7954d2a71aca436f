"""Values that were not finite before a traced step took them: the line of the program that made them, while its frames are there."""

from __future__ import annotations

import sys
from typing import Any

from torch import Tensor

from tensonde.adapters.torch.observers.making import made_line
from tensonde.program.habits import may_overflow


def makers(tensors: list[tuple[int, Tensor]]) -> list[dict[str, Any]]:
    """Of each tensor (with its number in the trace) the expression that may have made it so, else the one that made it."""
    frame = sys._getframe(1)
    found = []
    for number, tensor in tensors[:4]:
        line = made_line(tensor, frame, may_overflow) or made_line(tensor, frame)
        if line is not None:
            found.append({"tensor": number, "line": line})
    return found
