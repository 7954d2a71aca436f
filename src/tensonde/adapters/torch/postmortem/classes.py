"""A class that is called where an object of it is meant: `criterion = nn.MSELoss`, then `criterion(output, target)`."""

from __future__ import annotations

import ast
import re
from typing import Any, TypeGuard

from torch import Tensor, nn

from tensonde.adapters.torch.postmortem.traceback import Failure
from tensonde.program import syntax
from tensonde.program.lines import line_at
from tensonde.program.origin import made
from tensonde.program.standing import Stand, failing_call, stand_at
from tensonde.program.values import FrameState, evaluate, plain


def class_called(failure: Failure) -> dict[str, Any] | None:
    """The class of modules that was called with tensors; the line that gave it a name, or the call itself."""
    for place in reversed(failure.user):
        call, stand = failing_call(place), stand_at(place, failure.user)
        if stand is None:
            continue
        kind = evaluate(call.func, place.frame) if call is not None else None
        if call is not None and _torchs(kind) and _given_tensors(place, kind, failure):
            return _fact(kind, call, stand, place.line)
        bare = _uninstantiated(call, place, failure) if call is not None else None
        if bare is not None:
            return _fact(*bare, stand, place.line)
        before = _made_before(place, stand, failure)
        if before is not None:
            return before
    return None


def _uninstantiated(call: ast.Call, place: FrameState, failure: Failure) -> tuple[type, ast.Call] | None:
    """`model = Net` without brackets, then `model.parameters()`, which misses its `self`, or `model(x)`, of which the
    `__init__` knows nothing."""
    method = (
        isinstance(call.func, ast.Attribute) and "missing 1 required positional argument: 'self'" in failure.message
    )
    built = re.search(r"__init__\(\) (takes|got|missing)", failure.message) is not None and any(
        isinstance(evaluate(a, place.frame), Tensor) for a in call.args
    )
    if not method and not built:
        return None
    named = call.func.value if method and isinstance(call.func, ast.Attribute) else call.func
    kind = evaluate(named, place.frame)
    if not isinstance(kind, type) or not issubclass(kind, nn.Module) or ast.unparse(named).endswith(kind.__name__):
        return None
    return kind, ast.Call(named, [], [])


def _torchs(kind: Any) -> TypeGuard[type]:
    """A class of torch's modules: none of them takes a tensor to be built."""
    return isinstance(kind, type) and issubclass(kind, nn.Module) and kind.__module__.startswith("torch.nn.modules")


def _given_tensors(place: FrameState, kind: type, failure: Failure) -> bool:
    """The frame of its `__init__`, which failed, holds a tensor."""
    inner = failure.places[failure.places.index(place) + 1 :]
    if not inner or inner[0].function != "__init__" or not isinstance(inner[0].frame.f_locals.get("self"), kind):
        return False
    return any(isinstance(value, Tensor) for value in inner[0].frame.f_locals.values())


def _made_before(place: FrameState, stand: Stand, failure: Failure) -> dict[str, Any] | None:
    """`loss = nn.MSELoss(output, target)` went well, and `loss.backward()` fails: a module of the failing line that the
    message says is none of what is wanted, made from something else than plain settings."""
    for node in ast.walk(place.expression or ast.Pass()):
        value = place.frame.f_locals.get(node.id) if isinstance(node, ast.Name) else None
        if not isinstance(node, ast.Name) or not isinstance(value, nn.Module):
            continue
        bound = [b for b in syntax.bindings(stand.scope, node.id) if b.line < place.line and not b.path]
        call = bound[-1].value if bound else None
        if not isinstance(call, ast.Call) or not re.search(rf"\b{type(value).__name__}\b", failure.message):
            continue
        given = [evaluate(a, place.frame) for a in call.args]
        if _torchs(type(value)) and evaluate(call.func, place.frame) is type(value) and not all(map(plain, given)):
            return _fact(type(value), call, stand, bound[-1].line)
    return None


def _fact(kind: type, call: ast.Call, stand: Stand, line: int) -> dict[str, Any]:
    named = (
        isinstance(call.func, ast.Attribute | ast.Name) and ast.unparse(call.func).rpartition(".")[2] != kind.__name__
    )
    way = made(call.func, stand, line) if named else None
    source = way.source if way is not None else line_at(stand.path, line)
    return {"class": kind.__name__, "called": ast.unparse(call.func), "named": named, "line": source}
