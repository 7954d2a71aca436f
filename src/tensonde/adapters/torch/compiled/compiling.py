"""The code that dynamo is compiling at the moment: its variables, and the module that it is a part of."""

from __future__ import annotations

from typing import Any

from torch import nn


def scopes() -> list[dict[str, Any]]:
    """Its variables, local ones first; none where something else called the compiler."""
    frame = _frame()
    return [] if frame is None else [frame.f_locals, frame.f_globals]


def whose_forward() -> nn.Module | None:
    """The module whose `forward`, or what is left of it after a graph break, is being compiled."""
    frame = _frame()
    if frame is None or "forward" not in frame.f_code.co_name:
        return None
    for name, local in frame.f_locals.items():
        code = getattr(getattr(type(local), "forward", None), "__code__", None)
        if not isinstance(local, nn.Module) or code is None:
            continue
        if code.co_filename == frame.f_code.co_filename and code.co_varnames[:1] == (name,):
            return local
    return None


def _frame() -> Any:
    from torch._dynamo.symbolic_convert import InstructionTranslator

    try:
        return InstructionTranslator.current_tx().output.root_tx
    except AttributeError:
        return None
