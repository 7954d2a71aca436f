"""Values that are not finite where a program fails on them: the first variable on the way that holds such."""

from __future__ import annotations

import ast
from typing import Any

import torch
from torch import Tensor

from tensonde.adapters.torch.postmortem.traceback import Failure
from tensonde.program import syntax
from tensonde.program.lines import line_at
from tensonde.program.values import FrameState, evaluate

_MOST = 1 << 22


def first_nonfinite(failure: Failure) -> dict[str, Any] | None:
    """Of the variables that hold NaN or Inf in the innermost frame that has some: the one that was made of finite ones. A
    plain number of zero that it is divided by is named, too."""
    for place in reversed(failure.user):
        found = [one for one in (_bound(name, place) for name in _bad(place)) if one is not None]
        for line, name, value in sorted(found, key=lambda one: one[0]):
            used = [evaluate(part, place.frame) for part in ast.walk(value) if isinstance(part, ast.Name)]
            if any(
                _counts(held)
                for held in used
                if isinstance(held, Tensor) and held is not place.frame.f_locals.get(name)
            ):
                continue
            nan, inf = _counts(place.frame.f_locals[name]) or (0, 0)
            fact = {
                "name": name,
                "nan": nan,
                "inf": inf,
                "line": line_at(place.path, line),
                "code": ast.unparse(value)[:80],
            }
            return fact | _zero(value, place)
    return None


def _bad(place: FrameState) -> list[str]:
    return [name for name, held in place.frame.f_locals.items() if isinstance(held, Tensor) and _counts(held)]


def _counts(tensor: Tensor) -> tuple[int, int] | None:
    """NaN and Inf in a tensor; None where there is neither, or it cannot be asked."""
    if (
        not tensor.is_floating_point()
        or tensor.numel() > _MOST
        or tensor.device.type == "meta"
        or tensor.layout is not torch.strided
    ):
        return None
    flat = tensor.detach()
    nan, inf = int(torch.isnan(flat).sum()), int(torch.isinf(flat).sum())
    return (nan, inf) if nan or inf else None


def _bound(name: str, place: FrameState) -> tuple[int, str, ast.expr] | None:
    """The last assignment of a variable before the failing line."""
    scope = syntax.scope_at(place.path, place.line)
    bound = [
        b for b in (syntax.bindings(scope, name) if scope is not None else ()) if b.line < place.line and not b.loop
    ]
    return (bound[-1].line, name, bound[-1].value) if bound else None


def _zero(value: ast.expr, place: FrameState) -> dict[str, Any]:
    for part in ast.walk(value):
        if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Div):
            divisor = evaluate(part.right, place.frame)
            if isinstance(divisor, int | float) and divisor == 0:
                return {"divisor": ast.unparse(part.right)[:60]}
    return {}
