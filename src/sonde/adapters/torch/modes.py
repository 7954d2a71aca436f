"""Torch-function modes of Sonde's on torch's stack of them, without disturbing the user's own."""

from __future__ import annotations

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._device import DeviceContext

_push = torch._C._push_on_torch_function_stack
_pop = torch._C._pop_torch_function_stack
_length = torch._C._len_torch_function_stack
_at = torch._C._get_function_stack_at


def remove(mode: TorchFunctionMode) -> None:
    """Takes a mode off the stack wherever it is, leaving the user's own modes as they were."""
    above = []
    while _length():
        top = _pop()
        if top is mode:
            break
        above.append(top)
    for other in reversed(above):
        _push(other)


def on_stack(mode: TorchFunctionMode) -> bool:
    return any(_at(k) is mode for k in range(_length()))


def take_top(mode: TorchFunctionMode) -> bool:
    """Takes the mode off if it is the topmost one."""
    count = _length()
    if count and _at(count - 1) is mode:
        _pop()
        return True
    return False


def push(mode: TorchFunctionMode) -> None:
    _push(mode)


def push_under_nothing(mode: TorchFunctionMode) -> bool:
    """Pushes the mode unless the user is inside a mode of his own, who would pop ours on leaving it.

    The default device is a mode as well, but one that torch itself keeps at the bottom.
    """
    count = _length()
    if count > 1 or (count == 1 and not isinstance(_at(0), DeviceContext)):
        return False
    _push(mode)
    return True
