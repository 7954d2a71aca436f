"""Gradient hooks on tensors that live for one step."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from torch import Tensor


def hook(tensor: Tensor, tap: Callable[[Any], None]) -> None:
    """`tensor.register_hook(tap)` without the price of its handle; the tensor is no leaf and lives for one step."""
    hooks = tensor._backward_hooks
    if hooks is None:
        tensor._backward_hooks = OrderedDict(((tap, tap),))
        tensor.grad_fn._register_hook_dict(tensor)  # without it, autograd never looks at the dictionary
    else:
        hooks[tap] = tap
