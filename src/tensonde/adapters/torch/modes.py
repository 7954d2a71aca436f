"""Torch-function modes of Tensonde's on torch's stack of them, without disturbing the user's own."""

from __future__ import annotations

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._device import DeviceContext

_push = torch._C._push_on_torch_function_stack
_pop = torch._C._pop_torch_function_stack
_length = torch._C._len_torch_function_stack
_at = torch._C._get_function_stack_at
_functorch_level = torch._C._functorch.maybe_current_level
_jit_state = torch._C._get_tracing_state


def remove(mode: TorchFunctionMode) -> bool:
    """Takes a mode off the stack wherever it is, leaving the user's own modes as they were. Whether it was there."""
    count = _length()
    if not count:
        return False
    if _at(count - 1) is mode:
        _pop()
        return True
    above = []
    found = False
    while not found and _length():
        top = _pop()
        found = top is mode
        if not found:
            above.append(top)
    for other in reversed(above):
        _push(other)
    return found


def push(mode: TorchFunctionMode) -> None:
    """Puts a mode under all others, because leaving a mode takes off whatever is on top.

    Only the default device stays below, a mode that torch itself keeps at the bottom.
    """
    if not _length():
        _push(mode)
        return
    above = []
    while count := _length():
        if count == 1 and isinstance(_at(0), DeviceContext):
            break
        above.append(_pop())
    _push(mode)
    for other in reversed(above):
        _push(other)


def transforming() -> bool:
    """Inside a function transform or torch.jit.trace: tensors have no values, or what we do would become part
    of the result."""
    return _functorch_level() is not None or _jit_state() is not None
