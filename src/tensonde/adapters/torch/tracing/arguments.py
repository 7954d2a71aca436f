"""The non-tensor arguments of an op, by name where the name is known, as values that JSON can hold."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

_BUILTINS: Mapping[str, tuple[str, ...]] = {
    "softmax": ("input", "dim", "dtype"),
    "log_softmax": ("input", "dim", "dtype"),
    "softmin": ("input", "dim"),
    "logsumexp": ("input", "dim", "keepdim"),
    "dropout": ("input", "p", "train"),
    "sum": ("input", "dim", "keepdim"),
    "mean": ("input", "dim", "keepdim"),
    "prod": ("input", "dim", "keepdim"),
    "var": ("input", "dim", "unbiased", "keepdim"),
    "std": ("input", "dim", "unbiased", "keepdim"),
    "norm": ("input", "p", "dim", "keepdim"),
    "vector_norm": ("input", "ord", "dim", "keepdim"),
    "max": ("input", "dim", "keepdim"),
    "min": ("input", "dim", "keepdim"),
    "amax": ("input", "dim", "keepdim"),
    "argmax": ("input", "dim", "keepdim"),
    "argsort": ("input", "dim", "descending"),
    "clamp": ("input", "min", "max"),
    "clip": ("input", "min", "max"),
    "clamp_min": ("input", "min"),
    "clamp_max": ("input", "max"),
    "masked_fill": ("input", "mask", "value"),
    "fill": ("input", "value"),
    "where": ("condition", "input", "other"),
    "pow": ("input", "exponent"),
    "add": ("input", "other"),
    "sub": ("input", "other"),
    "mul": ("input", "other"),
    "div": ("input", "other"),
    "truediv": ("input", "other"),
    "floordiv": ("input", "other"),
    "transpose": ("input", "dim0", "dim1"),
    "unsqueeze": ("input", "dim"),
    "squeeze": ("input", "dim"),
    "flatten": ("input", "start_dim", "end_dim"),
    "cat": ("tensors", "dim"),
    "stack": ("tensors", "dim"),
    "gather": ("input", "dim", "index"),
    "index_select": ("input", "dim", "index"),
    "chunk": ("input", "chunks", "dim"),
    "split": ("input", "split_size", "dim"),
    "cumsum": ("input", "dim"),
    "to": ("input", "target"),
    "linear": ("input", "weight", "bias"),
    "scaled_dot_product_attention": ("query", "key", "value", "attn_mask", "dropout_p", "is_causal"),
    "conv1d": ("input", "weight", "bias", "stride", "padding", "dilation", "groups"),
    "conv2d": ("input", "weight", "bias", "stride", "padding", "dilation", "groups"),
}
_SIZES = frozenset({"view", "reshape", "expand", "permute", "repeat"})
_SOME = 16
_signatures: dict[Any, tuple[str, ...]] = {}


def named(op: str, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """What is not a tensor among the arguments."""
    key = op.rstrip("_")
    if key in _SIZES and len(args) > 1:
        sizes = args[1] if isinstance(args[1], list | tuple) else args[1:]
        return {"sizes": plain(sizes)}
    if key == "einsum" and args and isinstance(args[0], str):
        return {"equation": plain(args[0])}
    names = _names(key, func) if len(args) > 1 else ()
    given: dict[str, Any] = {}
    for k, value in enumerate(args):
        if not _has_tensor(value) and (k or not names):
            given[names[k] if k < len(names) else str(k)] = plain(value)
    for name, value in kwargs.items():
        if not _has_tensor(value):
            given[name] = plain(value)
    if given.get("size_average") is not None or given.get("reduce") is not None:  # as losses said it before `reduction`
        average, reduce = (given.get(name) is not False for name in ("size_average", "reduce"))
        given["reduction"] = "none" if not reduce else "mean" if average else "sum"
    return given


def _names(op: str, func: Callable[..., Any]) -> tuple[str, ...]:
    known = _BUILTINS.get(op)
    if inspect.isfunction(func):
        known = _signatures.get(func)
        if known is None:
            try:
                known = tuple(inspect.signature(func).parameters)
            except (TypeError, ValueError):
                known = ()
            _signatures[func] = known
    return known or ()


def _has_tensor(value: Any) -> bool:
    if isinstance(value, Tensor):
        return True
    return isinstance(value, list | tuple) and any(isinstance(item, Tensor) for item in value[:_SOME])


def plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value if not isinstance(value, str) else value[:200]
    if isinstance(value, list | tuple):
        return [plain(item) for item in value[:_SOME]]
    if isinstance(value, torch.dtype | torch.device):
        return str(value).removeprefix("torch.")
    if isinstance(value, slice):
        return f"{_edge(value.start)}:{_edge(value.stop)}"
    if value is Ellipsis:
        return "..."
    return type(value).__name__


def _edge(value: Any) -> str:
    return "" if value is None else str(value) if isinstance(value, int) else "?"
