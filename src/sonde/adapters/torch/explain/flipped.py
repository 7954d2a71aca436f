"""A numpy array that goes backwards in memory: the line that flips it."""

from __future__ import annotations

import ast
from typing import Any

import numpy as np

from sonde.adapters.torch.explain import program
from sonde.adapters.torch.explain.definition import source_file
from sonde.adapters.torch.explain.expression import evaluate
from sonde.adapters.torch.explain.making import made
from sonde.adapters.torch.explain.origin import unwrap
from sonde.adapters.torch.explain.standing import failing_call, stand_at
from sonde.adapters.torch.explain.traceback import Failure, as_json

_FLIPS = ("flip", "fliplr", "flipud", "rot90")


def flipped(failure: Failure) -> dict[str, Any] | None:
    """The nearest flip on the way back from what was given to torch; of an item of a batch, the only one of its data
    set's class."""
    place = failure.last
    if place is None or not place.is_user:
        return _in_data_set(failure)
    call, stand = failing_call(place), stand_at(place, failure)
    if call is None or stand is None:
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


def _is_flip(node: ast.expr) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(attr=name)) | ast.Call(func=ast.Name(id=name)):
            return name in _FLIPS
        case ast.Subscript(slice=index):
            return any(isinstance(inner, ast.Slice) and _backwards(inner.step) for inner in ast.walk(index))
    return False


def _backwards(step: ast.expr | None) -> bool:
    return isinstance(step, ast.UnaryOp) and isinstance(step.op, ast.USub)


def _in_data_set(failure: Failure) -> dict[str, Any] | None:
    fetching = next((place.frame.f_locals for place in failure.places if place.function == "fetch"), {})
    kind = type(unwrap(getattr(fetching.get("self"), "dataset", None)))
    path = source_file(kind)
    owner = program.class_named(path, kind.__name__) if path else None
    flips = sorted({n.lineno for n in ast.walk(owner) if isinstance(n, ast.expr) and _is_flip(n)}) if owner else []
    return {"line": as_json(program.source_line(path, flips[0]))} if path and len(flips) == 1 else None
