"""A numpy array that goes backwards in memory: the line that flips it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

import numpy as np

from tensonde.adapters.torch.postmortem.data import worker_files
from tensonde.adapters.torch.postmortem.origin import unwrap
from tensonde.adapters.torch.postmortem.traceback import Failure
from tensonde.program import syntax
from tensonde.program.classes import source_file
from tensonde.program.lines import line_at
from tensonde.program.origin import made
from tensonde.program.standing import failing_call, stand_at
from tensonde.program.values import evaluate

_FLIPS = ("flip", "fliplr", "flipud", "rot90")
_COPIES = ("copy", "ascontiguousarray", "array", "astype")


def flipped(failure: Failure) -> dict[str, Any] | None:
    """The nearest flip on the way back from what was given to torch; where the way is not known (an item of a batch, a
    worker's traceback), the only one of the program that is not copied."""
    return _on_the_way(failure) or _only_one(failure)


def _on_the_way(failure: Failure) -> dict[str, Any] | None:
    place = failure.last
    call = failing_call(place) if place is not None and place.is_user else None
    stand = stand_at(place, failure.user) if place is not None else None
    if call is None or stand is None or place is None:
        return None
    for node in [*call.args, *(keyword.value for keyword in call.keywords)]:
        value = evaluate(node, place.frame)
        if isinstance(value, np.ndarray) and not any(stride < 0 for stride in value.strides):
            continue
        way = made(node, stand, place.line, wanted=_is_flip)
        if way is not None:
            strides = list(value.strides) if isinstance(value, np.ndarray) else None
            return {"line": way.source, "strides": strides}
    return None


def _is_flip(node: ast.expr) -> bool | None:
    """None for a copy: what lies behind it is of no account."""
    match node:
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name) as func):
            owner = ast.unparse(func).rpartition(".")[0]  # flip of torch and of cv2 copy
            return None if name in _COPIES else name in _FLIPS and owner in ("", "np", "numpy")
        case ast.Subscript(slice=index):
            return any(isinstance(inner, ast.Slice) and _backwards(inner.step) for inner in ast.walk(index))
    return False


def _backwards(step: ast.expr | None) -> bool:
    return isinstance(step, ast.UnaryOp) and isinstance(step.op, ast.USub)


def _only_one(failure: Failure) -> dict[str, Any] | None:
    fetching = next((place.frame.f_locals for place in failure.places if place.function == "fetch"), {})
    kind = source_file(type(unwrap(getattr(fetching.get("self"), "dataset", None))))
    paths = dict.fromkeys([*([kind] if kind else []), *worker_files(failure), *(place.path for place in failure.user)])
    found = {
        (path, line)
        for path in paths
        for function in syntax.walk(path)
        if isinstance(function, ast.Lambda) or (isinstance(function, ast.FunctionDef) and function.name != "__init__")
        for line in _uncopied(function)
    }
    return {"line": line_at(*found.pop())} if len(found) == 1 else None


def _uncopied(node: ast.AST | None) -> Iterator[int]:
    """Lines of flips that nothing copies."""
    if node is None:
        return
    for inner in ast.iter_child_nodes(node):
        fits = _is_flip(inner) if isinstance(inner, ast.expr) else False
        if fits:
            yield inner.lineno  # type: ignore[attr-defined]
        elif fits is not None:
            yield from _uncopied(inner)
