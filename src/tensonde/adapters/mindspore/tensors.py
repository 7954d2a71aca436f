"""MindSpore's tensors as memory that the kernel can read.

Ops run behind the program, in threads of MindSpore's own: reading a tensor waits for the op that makes it, and an op that failed
raises then. Such an exception is the program's, not ours: `values_of` marks it, and whoever contains our failures lets it pass.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeGuard

import numpy as np
from mindspore import Parameter, Tensor
from numpy.typing import NDArray

_MARK = "_tensonde_surfaced"
_DEEPEST = 6


def is_tensor(thing: Any) -> TypeGuard[Any]:
    return isinstance(thing, Tensor)


def is_parameter(thing: Any) -> bool:
    return isinstance(thing, Parameter)


def tensors_in(thing: Any, deepest: int = _DEEPEST) -> list[Any]:
    """The tensors in nested tuples, lists and dicts, in order."""
    if isinstance(thing, Tensor):
        return [thing]
    if deepest and isinstance(thing, list | tuple):
        return [found for item in thing for found in tensors_in(item, deepest - 1)]
    if deepest and isinstance(thing, dict):
        return [found for item in thing.values() for found in tensors_in(item, deepest - 1)]
    return []


def dtype_name(tensor: Any) -> str:
    """`float32`, as numpy and the recording call it."""
    return str(tensor.dtype).lower()


def shape_of(tensor: Any) -> tuple[int, ...]:
    return tuple(tensor.shape)


def is_floating(tensor: Any) -> bool:
    return "float" in dtype_name(tensor) or "complex" in dtype_name(tensor)


def joined(tensor: Any) -> bool:
    """Whether a tensor that is computed in a pass leads back to something that wants a gradient. What is made of numbers
    (`Tensor(h.asnumpy())`) does not, though it may lie in the memory of a tensor that does."""
    return getattr(tensor, "_requires_grad", True) is not False


def elements(tensor: Any) -> int:
    count = 1
    for size in tensor.shape:
        count *= size
    return count


def bytes_of(tensor: Any) -> int:
    return int(elements(tensor) * tensor.itemsize)


def values_of(tensor: Any) -> NDArray[Any] | None:
    """The tensor's own memory where numpy knows its dtype, else a float32 copy (bfloat16). None: it has no values, or is no tensor
    (the gradient of an output that nothing used)."""
    if not isinstance(tensor, Tensor):
        return None
    try:
        array: NDArray[Any] = tensor.asnumpy()
    except Exception as problem:
        if _has_no_values(problem):
            return None
        surface(problem)
        raise
    if array.dtype.kind not in "fiubc":
        return array.astype(np.float32)
    return array


def write(tensor: Any, values: NDArray[Any]) -> None:
    """Into its own memory: `assign_value` gives a parameter other memory, and what `jit` has compiled goes on with the old; a tensor that an op has
    made is cut from its graph by it, so that no gradient comes through it any more."""
    memory = memory_of(tensor)
    if memory is None:
        tensor.assign_value(Tensor(values, dtype=tensor.dtype))
    else:
        np.copyto(memory, values)


def memory_of(tensor: Any) -> NDArray[Any] | None:
    """The tensor's own memory, to write to; None where it cannot be had."""
    array: NDArray[Any] = tensor.asnumpy()
    return array if array.flags.writeable and array.dtype.kind in "fiubc" else None


def wait_for(tensors: Sequence[Any]) -> None:
    """Until the program's own ops have come to the last of these: that time is the program's, not ours."""
    if tensors and isinstance(tensors[-1], Tensor):
        values_of(tensors[-1])


def _has_no_values(problem: Exception) -> bool:
    return isinstance(problem, TypeError | NotImplementedError)


def surface(problem: BaseException) -> None:
    """An op of the program failed behind it, and our reading was the first to hear."""
    setattr(problem, _MARK, True)


def surfaced(problem: BaseException) -> bool:
    return getattr(problem, _MARK, False) is True


def hook(tensor: Any, seen: Callable[[Any], Any]) -> None:
    """`seen` is called with the gradient of the tensor. Where the tensor goes into compiled code, MindSpore's compiler reads the Python of hooks
    that are functions, and ends the program where it cannot; objects that can be called it leaves alone. What a cell that is recomputed gives at first has no
    gradient and takes no hook."""
    with contextlib.suppress(RuntimeError):
        tensor.register_hook(functools.partial(seen))
