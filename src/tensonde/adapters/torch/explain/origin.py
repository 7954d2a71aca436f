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

from tensonde.adapters.torch import batches
from tensonde.adapters.torch.explain import program
from tensonde.adapters.torch.explain.definition import attribute_line, frames, source_file
from tensonde.adapters.torch.explain.expression import UNKNOWN, evaluate
from tensonde.adapters.torch.explain.traceback import Failure, Place, as_json
from tensonde.adapters.torch.frames import is_user

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


def from_name(name: str, place: Place, before: int, path: tuple[int, ...], depth: int) -> dict[str, Any] | None:
    """The latest binding of the name that comes before the line (in a loop, any of the loop's)."""
    frame = place.frame
    scope = program.scope_at(place.path, place.line)
    if scope is None or depth == 0:
        return None
    if name in frame.f_locals or name in frame.f_globals:
        found = program.bindings(scope, name)
        if not found and not isinstance(scope, ast.Module) and name not in frame.f_locals:
            tree = program.parse(place.path)
            found = program.bindings(tree, name) if tree is not None else []
            before = 1 << 30
    else:
        found = []
    earlier = [b for b in found if (b.line < before or (b.line == before and b.loop)) and not b.augmented]
    if not earlier:
        return None
    return _from_binding(earlier[-1], place, path, depth - 1)


def _from_binding(binding: program.Binding, place: Place, path: tuple[int, ...], depth: int) -> dict[str, Any] | None:
    where = [*binding.path, *path]
    node: ast.expr = binding.value
    if binding.loop:
        loader = _iterated(node, place.frame)
        if loader is not None:
            value, skip = loader
            return _from_loader(value, where[skip:], place)
        return {"kind": "variable", "line": as_json(program.source_line(place.path, binding.line))}
    return _from_expression(node, binding.line, place, where, depth)


def _from_expression(node: ast.expr, line: int, place: Place, where: list[int], depth: int) -> dict[str, Any] | None:
    here = {"kind": "variable", "line": as_json(program.source_line(place.path, line))}
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
            inside = _returned(called, where)
            if inside is not None:
                return {"kind": "variable", "line": inside}
    return here


def _kind(node: ast.expr, frame: FrameType) -> type:
    """The class of what an expression gives; of `Buffer()`, which is not made again for this, the one that is called."""
    made = evaluate(node.func, frame) if isinstance(node, ast.Call) else None
    return made if isinstance(made, type) else type(evaluate(node, frame))


def _returned(called: Any, where: list[Any]) -> dict[str, Any] | None:
    """The line of a function of the user's that makes this part of what it returns."""
    code = getattr(called, "__code__", None)
    if code is None or not is_user(code):
        return None
    scope = program.scope_at(code.co_filename, code.co_firstlineno + 1)
    if not isinstance(scope, ast.FunctionDef) or scope.name != code.co_name:
        return None
    return _item(scope, where[0] if where else None, code.co_filename)


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
        scope = program.scope_at(frame.f_code.co_filename, frame.f_lineno)
        for binding in program.bindings(scope, node.id) if scope is not None else ():
            if isinstance(binding.value, ast.Call) and not binding.loop:
                return _iterated(binding.value, frame)
    return None


def _from_loader(loader: Any, where: list[Any], place: Place) -> dict[str, Any]:
    part = where[0] if where else None
    if isinstance(loader, type):
        whole = issubclass(loader, TensorDataset)
        line = _argument_line(part, place) if whole and isinstance(part, int) else kind_line(loader, part)
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
        fact["line"] = _variable_line(held, place) or _argument_line(where[0], place)
        return fact
    line = item_line(data, where[0] if where else None)
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


def item_line(data: Any, part: Any) -> dict[str, Any] | None:
    """The line of `__getitem__` (or `__iter__`) that makes this part of an item."""
    return kind_line(type(data), part)


def _held_line(kind: type, node: ast.expr) -> dict[str, Any] | None:
    """Of `self.y[i]`, which is handed out as it is held: where `self.y` got its values."""
    match node:
        case ast.Subscript(value=ast.Attribute(value=ast.Name(id="self"), attr=name)):
            found = attribute_line(kind, name)
            return as_json(program.source_line(found[0], found[2])) if found is not None else None
    return None


def kind_line(kind: type, part: Any) -> dict[str, Any] | None:
    for name in ("__getitem__", "__iter__"):
        for base in kind.__mro__:
            if name in vars(base) and base is not Dataset:
                path = source_file(base)
                owner = program.class_named(path, base.__name__) if path else None
                found = program.method(owner, name) if owner is not None else None
                if found is not None and path is not None:
                    given = _given(found, part)
                    return (_held_line(kind, given) if given is not None else None) or _item(found, part, path)
                break
    return None


def _given(function: ast.FunctionDef, part: Any) -> ast.expr | None:
    """What a function returns (or yields) last, or this part of it."""
    given = [
        node.value for node in program.statements(function) if isinstance(node, ast.Return) and node.value is not None
    ]
    given += [
        node.value.value
        for node in program.statements(function)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Yield) and node.value.value is not None
    ]
    if not given:
        return None
    value = given[-1]
    chosen: ast.expr = value
    if isinstance(value, ast.Tuple) and isinstance(part, int) and part < len(value.elts):
        chosen = value.elts[part]
    elif isinstance(value, ast.Dict) and isinstance(part, str):
        keys = {
            key.value: item for key, item in zip(value.keys, value.values, strict=True) if isinstance(key, ast.Constant)
        }
        chosen = keys.get(part, value)
    return chosen


def _item(function: ast.FunctionDef, part: Any, path: str) -> dict[str, Any] | None:
    chosen = _given(function, part)
    if chosen is None:
        return None
    line = chosen.lineno
    if isinstance(chosen, ast.Name):
        bound = [b for b in program.bindings(function, chosen.id) if b.line <= line]
        line = bound[-1].line if bound else line
    return as_json(program.source_line(path, line))


def _variable_line(held: Any, place: Place) -> dict[str, Any] | None:
    """Where the variable that holds this very object was last given a value."""
    tree = program.parse(place.path)
    for scope, names in (
        (program.scope_at(place.path, place.line), place.frame.f_locals),
        (tree, place.frame.f_globals),
    ):
        for name, value in names.items():
            if value is held and scope is not None:
                found = [binding for binding in program.bindings(scope, name) if not binding.augmented]
                if found:
                    return as_json(program.source_line(place.path, found[-1].line))
    return None


def _argument_line(part: int, place: Place) -> dict[str, Any] | None:
    """The line that makes an argument of the only `TensorDataset(x, y)` in the file."""
    tree = program.parse(place.path)
    calls = [
        node
        for node in (ast.walk(tree) if tree is not None else ())
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("TensorDataset") and part < len(node.args)
    ]
    if len(calls) != 1:
        return None
    given = calls[0].args[part]
    scope = program.scope_at(place.path, calls[0].lineno)
    if isinstance(given, ast.Name) and scope is not None:
        bound = [
            b for b in program.bindings(scope, given.id) if not b.loop and not b.augmented and b.line < calls[0].lineno
        ]
        if bound:
            return as_json(program.source_line(place.path, bound[-1].line))
    return as_json(program.source_line(place.path, given.lineno))


def attribute_of_self(held: Any, failure: Failure) -> tuple[str, dict[str, Any] | None] | None:
    """A tensor that an object keeps as a plain attribute: its name and the line that sets it."""
    for frame in frames(failure):
        holder = frame.f_locals.get("self")
        for name, value in getattr(holder, "__dict__", {}).items():
            if value is held:
                made = attribute_line(type(holder), name)
                return name, None if made is None else as_json(program.source_line(made[0], made[2]))
    return None
