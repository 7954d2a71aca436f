"""The latest call of a root, remembered without keeping anything alive: what to run again when its caller has returned."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from tensonde.adapters.torch.seams.vanishing import Ref

Held = Callable[[], Any]


class LatestCall:
    """The training thread notes; `recall` is asked once, at the end."""

    __slots__ = ("_args", "_kwargs", "_module")

    def __init__(self) -> None:
        self._module: Held | None = None
        self._args: tuple[Any, ...] = ()
        self._kwargs: dict[str, Any] = {}

    def note(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not module._parameters and not module._modules:
            return  # a criterion
        self._module = weakref.ref(module)
        self._args = tuple([Ref(a) if isinstance(a, Tensor) else _plain(a) for a in args])
        self._kwargs = {k: Ref(a) if isinstance(a, Tensor) else _plain(a) for k, a in kwargs.items()}

    def forget(self) -> None:
        """Later calls are not noted."""
        self._module = None

    def recall(self) -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]] | None:
        """None where something of it is gone, or was never remembered."""
        module = self._module() if self._module is not None else None
        if module is None:
            return None
        args = tuple(_held(a) for a in self._args)
        kwargs = {k: _held(a) for k, a in self._kwargs.items()}
        if any(a is _GONE for a in (*args, *kwargs.values())):
            return None
        return module, args, kwargs


_GONE = object()


def _plain(value: Any) -> Any:
    """Numbers, flags and words are kept; anything else might be large, and makes the call impossible to repeat."""
    return value if value is None or isinstance(value, int | float | str) else _GONE


def _held(value: Any) -> Any:
    if isinstance(value, weakref.ref):
        found = value()
        return _GONE if found is None else found
    return value
