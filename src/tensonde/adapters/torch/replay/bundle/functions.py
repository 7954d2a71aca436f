"""Names of the functions that a tape may hold, and back: only what torch itself lets a mode see.

A name in a bundle is looked up in these lists and nowhere else; none of them loads, saves or calls something given.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import get_overridable_functions, resolve_name

_MAKERS = ("zeros", "ones", "full", "eye", "arange", "linspace", "tensor", "as_tensor", "asarray")
_OWN_MAKERS = ("new_zeros", "new_ones", "new_full")
_NATIVE = ("_VariableFunctions", "_nn", "_special", "_linalg", "_fft")
_OPERATOR = re.compile(r"torch\.ops\.([A-Za-z]\w*)\.([A-Za-z_]\w*)(?:\.([A-Za-z]\w*))?")


def name_of(function: Callable[..., Any]) -> str | None:
    """None for one that a bundle cannot name."""
    kind = type(function).__name__
    if kind in ("OpOverload", "OpOverloadPacket"):
        return f"torch.ops.{function}" if _harmless(function) else None
    name = resolve_name(function)
    if name is not None and _known().get(name) is not None:
        return str(name)
    bare = getattr(function, "__name__", "")
    for space in _NATIVE:
        if "file" not in bare and getattr(getattr(torch._C, space), bare, None) == function:
            return f"torch._C.{space}.{bare}"
    return None


def function_of(name: str) -> Callable[..., Any] | None:
    """None where there is none of this name, in this torch or at all."""
    operator = _OPERATOR.fullmatch(name)
    if operator is not None:
        space, packet, overload = operator.groups()
        try:
            found = getattr(getattr(torch.ops, space), packet)
            found = getattr(found, overload) if overload else found
        except (AttributeError, RuntimeError):
            return None
        return found if _harmless(found) else None
    native = re.fullmatch(rf"torch\._C\.({'|'.join(_NATIVE)})\.(_?[a-z]\w*)", name)
    if native is not None and "file" not in native.group(2):
        return getattr(getattr(torch._C, native.group(1)), native.group(2), None)
    return _known().get(name)


def _harmless(operator: Any) -> bool:
    """An operator, and none that is given the name of a file; `torch.ops` has methods of its own, too."""
    if isinstance(operator, torch._ops.OpOverloadPacket):
        return all(_harmless(getattr(operator, overload)) for overload in operator.overloads())
    if not isinstance(operator, torch._ops.OpOverload) or operator.namespace == "prim":
        return False
    return not any("file" in argument.name for argument in operator._schema.arguments)


@functools.cache
def _known() -> dict[str, Callable[..., Any]]:
    found: dict[str, Callable[..., Any]] = {}
    for functions in get_overridable_functions().values():
        for function in functions:
            found.setdefault(resolve_name(function), function)
    found |= {f"torch.{name}": getattr(torch, name) for name in _MAKERS}
    found |= {f"torch.Tensor.{name}": getattr(torch.Tensor, name) for name in _OWN_MAKERS}
    return found
