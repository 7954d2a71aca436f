"""Gradient hooks on tensors that live for one step."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from torch import Tensor


def hook(tensor: Tensor, tap: Callable[[Any], None]) -> None:
    """`tensor.register_hook(tap)` at a fraction of its price: no handle is needed, the tensor lives for one step.

    For tensors with a history only: the node that made the tensor must know the hooks as well.
    """
    hooks = tensor._backward_hooks
    if hooks is None:
        tensor._backward_hooks = OrderedDict(((tap, tap),))
        tensor.grad_fn._register_hook_dict(tensor)
    else:
        hooks[tap] = tap
