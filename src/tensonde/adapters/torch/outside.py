"""Values that were not finite before a traced step took them: the line of the program that made them, while its frames are there."""

from __future__ import annotations

import ast
import sys
from typing import Any

from torch import Tensor

from tensonde.adapters.torch.facts.making import made_line

_MAKING = frozenset(
    ("div", "true_divide", "divide", "pow", "power", "float_power", "log", "log2", "log10", "sqrt", "rsqrt", "reciprocal", "exp")
)  # fmt: skip
"""Calls that may make NaN or Inf of finite numbers."""


def makers(tensors: list[tuple[int, Tensor]]) -> list[dict[str, Any]]:
    """Of each tensor (with its number in the trace) the expression that may have made it so, else the one that made it."""
    frame = sys._getframe(1)
    found = []
    for number, tensor in tensors[:4]:
        line = made_line(tensor, frame, _may_overflow) or made_line(tensor, frame)
        if line is not None:
            found.append({"tensor": number, "line": line})
    return found


def _may_overflow(node: ast.expr) -> bool:
    match node:
        case ast.BinOp(op=ast.Div() | ast.Pow()):
            return True
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)):
            return name.rstrip("_") in _MAKING
    return False
