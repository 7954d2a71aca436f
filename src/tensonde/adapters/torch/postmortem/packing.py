"""A sequence unpacked to the longest of its batch, beside tensors of the whole length."""

from __future__ import annotations

import ast
import re
from typing import Any

from torch import Tensor

from tensonde.adapters.torch.postmortem.traceback import Failure
from tensonde.program import syntax
from tensonde.program.lines import line_at
from tensonde.program.origin import made
from tensonde.program.standing import failing_call, stand_at
from tensonde.program.values import FrameState, evaluate

_SIZES = re.compile(
    r"size of tensor a \((\d+)\) must match the size of tensor b \((\d+)\)|Expected size (\d+) but got size (\d+)"
)


def unpacked_short(failure: Failure) -> dict[str, Any] | None:
    """`pad_packed_sequence` without `total_length` before the failing line, whose result has the smaller of the two
    sizes as its length."""
    told = _SIZES.search(failure.message)
    if told is None:
        return None
    sizes = sorted(int(size) for size in told.groups() if size is not None)
    for place in reversed(failure.user):
        found = _in_frame(place, sizes[0]) or _behind(place, failure, sizes[0])
        if found is not None:
            return {"line": found, "length": sizes[0], "wanted": sizes[1]}
    return None


def _in_frame(place: FrameState, short: int) -> dict[str, Any] | None:
    """In the running function: the variable that holds the result tells its length."""
    scope = syntax.scope_at(place.path, place.line)
    for node in syntax.statements(scope) if scope is not None else ():
        if not isinstance(node, ast.Assign) or node.lineno > place.line or not _unpacks(node.value):
            continue
        target = node.targets[0]
        name = target.elts[0] if isinstance(target, ast.Tuple) and target.elts else target
        value = evaluate(name, place.frame)
        value = value[0] if isinstance(value, tuple) and value else value
        if isinstance(value, Tensor) and short == _length(value, node.value):
            return line_at(place.path, node.lineno)
    return None


def _behind(place: FrameState, failure: Failure, short: int) -> dict[str, Any] | None:
    """In a forward that has ended, on the way back from what the failing call was given."""
    call, stand = failing_call(place), stand_at(place, failure.user)
    if call is None or stand is None:
        return None
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    given += [call.func.value] if isinstance(call.func, ast.Attribute) else []
    for node in given:
        value = evaluate(node, place.frame)
        way = made(node, stand, place.line, wanted=_unpacks) if isinstance(value, Tensor) else None
        if way is not None and short == _length(value, way.node):
            return way.source
    return None


def _unpacks(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Call)
        and ast.unparse(node.func).rpartition(".")[2] == "pad_packed_sequence"
        and len(node.args) < 4
        and not any(keyword.arg == "total_length" for keyword in node.keywords)
    )


def _length(value: Tensor, call: ast.expr) -> int | None:
    first = isinstance(call, ast.Call) and (
        any(k.arg == "batch_first" and isinstance(k.value, ast.Constant) and k.value.value for k in call.keywords)
        or (len(call.args) > 1 and isinstance(call.args[1], ast.Constant) and bool(call.args[1].value))
    )
    dimension = 1 if first else 0
    return value.shape[dimension] if value.dim() > dimension + (0 if first else 1) else None
