"""The non-tensor arguments of an op, by the names of traces, as values that JSON can hold."""

from __future__ import annotations

from types import FrameType
from typing import Any

from tensonde.adapters.mindspore.tensors import is_tensor

_NAMES = {
    "axis": "dim",
    "keep_dims": "keepdim",
    "norm_shape": "normalized_shape",
    "epsilon": "eps",
    "keep_prob": "keep_prob",
}
_CELL = (
    "p",
    "axis",
    "reduction",
    "momentum",
    "eps",
    "normalized_shape",
    "num_groups",
    "label_smoothing",
    "sparse",
    "pad_mode",
)
_SOME = 16


_POSITIONS = {"softmax": {1: "dim"}, "log_softmax": {1: "dim"}}
"""Of primitives, by the op's name in traces."""


def of_call(frame: FrameType | None, args: Any, op: str) -> dict[str, Any]:
    """Of a function of the library, by its frame; else of a primitive, by position."""
    if frame is not None:
        code = frame.f_code
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        given = {name: frame.f_locals[name] for name in names if name in frame.f_locals}
    else:
        known = _POSITIONS.get(op, {})
        given = {known.get(k, str(k)): value for k, value in enumerate(args)}
    return {
        _NAMES.get(name, name): plain(value)
        for name, value in given.items()
        if is_plain(value) and name not in ("self", "cls")
    }


def of_cell(cell: Any) -> dict[str, Any]:
    held = vars(cell)
    found = {_NAMES.get(name, name): plain(held[name]) for name in _CELL if name in held and is_plain(held[name])}
    if "p" in found or "momentum" in found:
        found["training"] = bool(cell.training)
    return found


def is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(is_plain(item) for item in value[:_SOME])
    return value is None or (isinstance(value, bool | int | float | str) and not is_tensor(value))


def plain(value: Any) -> Any:
    if isinstance(value, str):
        return value[:200]
    return [plain(item) for item in value[:_SOME]] if isinstance(value, list | tuple) else value
