"""A class that is called where an object of it is meant: `criterion = nn.MSELoss`, then `criterion(output, target)`."""

from __future__ import annotations

import ast
from typing import Any

from torch import Tensor, nn

from sonde.adapters.torch.explain import program
from sonde.adapters.torch.explain.expression import evaluate
from sonde.adapters.torch.explain.making import made
from sonde.adapters.torch.explain.standing import Stand, failing_call, stand_at
from sonde.adapters.torch.explain.traceback import Failure, Place, as_json


def class_called(failure: Failure) -> dict[str, Any] | None:
    """The class of modules that was called with tensors; the line that gave it a name, or the call itself."""
    for place in reversed(failure.user):
        call = failing_call(place)
        stand = stand_at(place, failure)
        if stand is None:
            continue
        if call is not None and (found := _class(call, place)) is not None:
            return _fact(found, call, stand, place.line)
        found_before = _made_before(place, stand)
        if found_before is not None:
            return found_before
    return None


def _class(call: ast.Call, place: Place) -> type | None:
    """A class of modules that is given tensors: no layer of torch's takes one to be built."""
    kind = evaluate(call.func, place.frame)
    if (
        not isinstance(kind, type)
        or not issubclass(kind, nn.Module)
        or not kind.__module__.startswith("torch.nn.modules")
    ):
        return None
    given = [evaluate(a, place.frame) for a in call.args]
    return kind if any(isinstance(value, Tensor) for value in given) else None


def _made_before(place: Place, stand: Stand) -> dict[str, Any] | None:
    """`loss = nn.MSELoss(output, target)` went well, and `loss.backward()` fails: a module of the failing line that was
    made from tensors."""
    for node in ast.walk(place.expression or ast.Pass()):
        if not isinstance(node, ast.Name):
            continue
        value = place.frame.f_locals.get(node.id)
        if not isinstance(value, nn.Module):
            continue
        bound = [b for b in program.bindings(stand.scope, node.id) if b.line < place.line and not b.path]
        if bound and isinstance(bound[-1].value, ast.Call) and _class(bound[-1].value, place) is type(value):
            return _fact(type(value), bound[-1].value, stand, bound[-1].line)
    return None


def _fact(kind: type, call: ast.Call, stand: Stand, line: int) -> dict[str, Any]:
    named = (
        isinstance(call.func, ast.Attribute | ast.Name) and ast.unparse(call.func).rpartition(".")[2] != kind.__name__
    )
    way = made(call.func, stand, line) if named else None
    source = way.source if way is not None else as_json(program.source_line(stand.path, line))
    return {"class": kind.__name__, "called": ast.unparse(call.func), "named": named, "line": source}
