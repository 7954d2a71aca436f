"""The call of the root module whose output the failing code was working on, found again in the user's frames."""

from __future__ import annotations

import ast
from typing import Any

from torch import Tensor, nn

from tensonde.adapters.torch.postmortem.traceback import Call, Failure
from tensonde.model.site import SourceLine
from tensonde.program import syntax
from tensonde.program.lines import source_line
from tensonde.program.values import UNKNOWN, FrameState, evaluate


def root_call(failure: Failure) -> tuple[Call, SourceLine | None] | None:
    """The running one; else the latest call of a module with parameters before the failing line whose arguments still
    stand in variables."""
    for call in failure.calls:
        if next(call.module.parameters(), None) is not None:
            return call, None
    for place in reversed(failure.user):
        calls = [found for found in _calls(place) if found[1].line <= place.line]
        if calls:
            return calls[-1]
    latest = failure.latest.recall()
    return None if latest is None else (Call(*latest, failure.name_of(latest[0])), None)


def _calls(place: FrameState) -> list[tuple[Call, SourceLine]]:
    scope = syntax.scope_at(place.path, place.line)
    found: list[tuple[Call, SourceLine]] = []
    for statement in syntax.statements(scope) if scope is not None else ():
        if isinstance(
            statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.For | ast.While | ast.With | ast.If
        ):
            parts: list[ast.AST] = [getattr(statement, "iter", None) or getattr(statement, "test", None) or ast.Pass()]
        else:
            parts = [statement]
        for node in (inner for part in parts for inner in ast.walk(part)):
            if isinstance(node, ast.Call):
                made = as_call(node, place)
                if made is not None:
                    found.append((made, source_line(place.path, node.lineno)))
    return found


def as_call(node: ast.Call, place: FrameState) -> Call | None:
    module = evaluate(node.func, place.frame)
    if not isinstance(module, nn.Module) or next(module.parameters(), None) is None:
        return None
    args = tuple(evaluate(arg, place.frame) for arg in node.args)
    kwargs: dict[str, Any] = {str(part.arg): evaluate(part.value, place.frame) for part in node.keywords}
    if any(value is UNKNOWN for value in (*args, *kwargs.values())) or not any(
        isinstance(a, Tensor) for a in (*args, *kwargs.values())
    ):
        return None
    return Call(module, args, kwargs, type(module).__name__)
