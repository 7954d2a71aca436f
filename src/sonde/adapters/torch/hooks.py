"""Gradient hooks on tensors that live for one step."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from torch import Tensor


def hook(tensor: Tensor, tap: Callable[[Any], None]) -> None:
    """`tensor.register_hook(tap)` at a fifth of its price: no handle is needed, the tensor lives for one step."""
    hooks = tensor._backward_hooks
    if hooks is None:
        tensor._backward_hooks = OrderedDict(((tap, tap),))
    else:
        hooks[tap] = tap
