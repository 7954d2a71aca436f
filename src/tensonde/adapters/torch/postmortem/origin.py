"""Where a tensor of the program comes from: an item of a data set, a variable's line, or a module that was called.

Followed through the names in the source: `xb` is bound by `for xb, yb in loader`, `loader` is a DataLoader over a
data set whose `__getitem__` returns two things, of which it is the first.
"""

from __future__ import annotations

import ast
from inspect import getattr_static
from types import FrameType
from typing import Any

from torch import Tensor, nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset, TensorDataset

from tensonde.adapters.torch.postmortem.definition import frames
from tensonde.adapters.torch.postmortem.traceback import Failure
from tensonde.adapters.torch.run import batches
from tensonde.program import syntax
from tensonde.program.classes import attribute_line, item_line, returned_line
from tensonde.program.lines import line_at
from tensonde.program.origin import argument_line, binding_before, variable_line
from tensonde.program.values import UNKNOWN, FrameState, evaluate

_DEPTH = 8
_SAME = (
    "to",
    "cuda",
    "cpu",
    "view",
    "reshape",
    "squeeze",
    "unsqueeze",
    "flatten",
    "contiguous",
    "permute",
    "transpose",
    "t",
    "detach",
)
"""Methods that leave values as they are: the tensor before them is where the data comes from."""


def origin(tensor: Tensor, failure: Failure) -> dict[str, Any] | None:
    """`kind` is `data` (made by a data set), `variable` or `module`; `line` is where it is made."""
    for place in reversed(failure.user):
        name = _name(tensor, place.frame)
        if name is not None:
            found = from_name(name, place, place.line, (), _DEPTH)
            if found is not None and (found["line"] is not None or found["kind"] == "module"):
                return {"name": name, **found}
    return None


def _name(tensor: Tensor, frame: FrameType) -> str | None:
    """The variable that holds the tensor itself, or one that it is a view of."""
    held = {name: value for name, value in frame.f_locals.items() if isinstance(value, Tensor)}
    for name, value in held.items():
        if value is tensor:
            return name
    for name, value in held.items():
        if value.numel() and _storage(value) == _storage(tensor) and value.dtype == tensor.dtype:
            return name
    return None


def _storage(tensor: Tensor) -> Any:
    try:
        return tensor.untyped_storage().data_ptr() or id(tensor)
    except Exception:
        return id(tensor)


def from_name(name: str, place: FrameState, before: int, path: tuple[int, ...], depth: int) -> dict[str, Any] | None:
    """The latest binding of the name that comes before the line (in a loop, any of the loop's)."""
    found = binding_before(name, place.frame, place.line, before) if depth else None
    return None if found is None else _from_binding(found, place, path, depth - 1)


def _from_binding(
    binding: syntax.Binding, place: FrameState, path: tuple[int, ...], depth: int
) -> dict[str, Any] | None:
    where = [*binding.path, *path]
    node: ast.expr = binding.value
    if binding.loop:
        loader = _iterated(node, place.frame)
        if loader is not None:
            value, skip = loader
            return _from_loader(value, where[skip:], place)
        return {"kind": "variable", "line": line_at(place.path, binding.line)}
    return _from_expression(node, binding.line, place, where, depth)


def _from_expression(
    node: ast.expr, line: int, place: FrameState, where: list[int], depth: int
) -> dict[str, Any] | None:
    here = {"kind": "variable", "line": line_at(place.path, line)}
    match node:
        case ast.Tuple(elts=parts) if where and where[0] < len(parts):
            return _from_expression(parts[where[0]], line, place, where[1:], depth)
        case ast.Name(id=name):
            return from_name(name, place, line, tuple(where), depth) or here
        case ast.Subscript(value=ast.Name(id=name), slice=index):
            key = evaluate(index, place.frame)
            if isinstance(key, int | str):
                return from_name(name, place, line, (key, *where), depth) or here  # type: ignore[arg-type]
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method)) if method in _SAME:
            return from_name(name, place, line, tuple(where), depth) or here
        case ast.Call(func=ast.Name(id="next"), args=[inner, *_]):
            loader = _iterated(inner, place.frame)
            if loader is not None:
                return _from_loader(loader[0], where[loader[1] :], place)
        case ast.Call(func=func):
            called = evaluate(func, place.frame)
            if isinstance(called, nn.Module):
                return {**here, "kind": "module", "module": called, "call": node, "frame": place.frame}
            if called is UNKNOWN and isinstance(func, ast.Attribute):  # a method of an object of the user's
                called = getattr_static(_kind(func.value, place.frame), func.attr, None)
            inside = returned_line(called, where)
            if inside is not None:
                return {"kind": "variable", "line": inside}
    return here


def _kind(node: ast.expr, frame: FrameType) -> type:
    """The class of what an expression gives; of `Buffer()`, which is not made again for this, the one that is called."""
    made = evaluate(node.func, frame) if isinstance(node, ast.Call) else None
    return made if isinstance(made, type) else type(evaluate(node, frame))


def _iterated(node: ast.expr, frame: FrameType) -> tuple[Any, int] | None:
    """The loader behind `loader`, `enumerate(loader)`, `tqdm(loader)`, `iter(loader)`, and how many indices lead to
    its batch. Of `DataLoader(...)` in the head of the loop, which is gone by now, the kind of its data set."""
    value = evaluate(node, frame)
    if isinstance(value, DataLoader):
        return value, 0
    if isinstance(node, ast.Call) and evaluate(node.func, frame) is DataLoader and batches.latest is not None:
        return batches.latest.kind, 0
    if isinstance(node, ast.Call) and node.args:
        inner = _iterated(node.args[0], frame)
        if inner is not None:
            name = node.func.id if isinstance(node.func, ast.Name) else ""
            return inner[0], inner[1] + (name == "enumerate")
    if isinstance(node, ast.Name):  # `it = iter(loader)`
        scope = syntax.scope_at(frame.f_code.co_filename, frame.f_lineno)
        for binding in syntax.bindings(scope, node.id) if scope is not None else ():
            if isinstance(binding.value, ast.Call) and not binding.loop:
                return _iterated(binding.value, frame)
    return None


def _from_loader(loader: Any, where: list[Any], place: FrameState) -> dict[str, Any]:
    part = where[0] if where else None
    if isinstance(loader, type):
        whole = issubclass(loader, TensorDataset)
        line = (
            argument_line(place.path, "TensorDataset", part)
            if whole and isinstance(part, int)
            else item_line(loader, part, Dataset)
        )
        return {"kind": "data", "dataset": loader.__name__, "part": part, "line": line}
    data = unwrap(loader.dataset)
    fact: dict[str, Any] = {
        "kind": "data",
        "dataset": type(data).__name__,
        "part": where[0] if where else None,
        "line": None,
    }
    if isinstance(data, TensorDataset) and where and isinstance(where[0], int) and where[0] < len(data.tensors):
        held = data.tensors[where[0]]
        fact["line"] = variable_line(held, place.frame, place.line) or argument_line(
            place.path, "TensorDataset", where[0]
        )
        return fact
    line = item_line(type(data), where[0] if where else None, Dataset)
    if line is None and loader.collate_fn is not None and hasattr(loader.collate_fn, "__code__"):
        return fact
    fact["line"] = line
    return fact


def unwrap(data: Any) -> Any:
    for _ in range(4):
        if isinstance(data, Subset):
            data = data.dataset
        elif isinstance(data, ConcatDataset) and data.datasets:
            data = data.datasets[0]
    return data


def attribute_of_self(held: Any, failure: Failure) -> tuple[str, dict[str, Any] | None] | None:
    """A tensor that an object keeps as a plain attribute: its name and the line that sets it."""
    for frame in frames(failure):
        holder = frame.f_locals.get("self")
        for name, value in getattr(holder, "__dict__", {}).items():
            if value is held:
                return name, attribute_line(type(holder), name)
    return None
