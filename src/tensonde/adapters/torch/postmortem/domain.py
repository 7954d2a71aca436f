"""A value outside of what an op or a distribution takes: which argument it was, and the line that made it."""

from __future__ import annotations

import ast
import re
from typing import Any

import torch
from torch import Tensor

from tensonde.adapters.torch.postmortem.traceback import Failure
from tensonde.program.origin import made
from tensonde.program.standing import Stand, argument_at, failing_call, stand_at
from tensonde.program.values import FrameState, evaluate

_PARAMETER = re.compile(
    r"Expected parameter (\w+) .*? of distribution (\w+)\(.*constraint (.*?), but found invalid", re.S
)
_OPS = ("multinomial", "bernoulli", "poisson", "normal", "cholesky", "cholesky_ex")


def out_of_domain(failure: Failure) -> dict[str, Any] | None:
    """The argument of the user's call, its least value, and the line that made it."""
    found = _parameter(failure) or _op_argument(failure)
    if found is None:
        return None
    name, place, stand, node, value, of = found
    fact: dict[str, Any] = {"argument": name, "of": of, **_extent(value)}
    way = made(node, stand, place.line)
    if way is not None:
        fact |= {"line": way.source, "code": ast.unparse(way.node)[:80]}
    return fact


Found = tuple[str, FrameState, Stand, ast.expr, Any, str]


def _parameter(failure: Failure) -> Found | None:
    """Of a distribution: the parameter that its constraint refuses, as the user's call gives it."""
    told = _PARAMETER.search(failure.message)
    place = failure.user[-1] if failure.user else None
    if told is None or place is None:
        return None
    inner = failure.places[failure.places.index(place) + 1 :]
    call, stand = failing_call(place), stand_at(place, failure.user)
    if not inner or call is None or stand is None:
        return None
    code = inner[0].frame.f_code
    node = argument_at(call, list(code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]), told[1])
    value = inner[0].frame.f_locals.get(told[1])
    return None if node is None else (told[1], place, stand, node, value, told[2])


def _op_argument(failure: Failure) -> Found | None:
    """Of an op: its first argument, or the tensor that it is a method of; of `normal`, the second."""
    place = failure.last
    if place is None or not place.is_user:
        return None
    call, stand = failing_call(place), stand_at(place, failure.user)
    if call is None or stand is None or not isinstance(call.func, ast.Attribute | ast.Name):
        return None
    op = call.func.attr if isinstance(call.func, ast.Attribute) else call.func.id
    if op not in _OPS:
        return None
    library = not isinstance(call.func, ast.Attribute) or isinstance(
        evaluate(call.func.value, place.frame), type(torch)
    )
    names = ["mean", "std"] if op == "normal" else ["input"]
    node = argument_at(call, names, names[-1]) if library else call.func.value  # type: ignore[union-attr]
    if node is None:
        return None
    return ast.unparse(node)[:60], place, stand, node, evaluate(node, place.frame), op


def _extent(value: Any) -> dict[str, Any]:
    """Least and largest of the finite values, how many are negative, how many are no numbers."""
    if not isinstance(value, Tensor) or not value.numel() or not value.is_floating_point():
        return {"min": float(value)} if isinstance(value, int | float) else {}
    with torch.no_grad():
        flat = value.detach().flatten().double()
        finite = flat[flat.isfinite()]
        fact: dict[str, Any] = {"shape": list(value.shape), "nonfinite": int(flat.numel() - finite.numel())}
        if finite.numel():
            fact |= {"min": float(finite.min()), "max": float(finite.max()), "negative": int((finite < 0).sum())}
    return fact
