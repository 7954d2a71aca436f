"""Why a checkpointed forward did something else when it was run again: what it asks for that its first run changed."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from types import FunctionType
from typing import Any

from torch import nn

from tensonde.adapters.torch.postmortem.traceback import Failure
from tensonde.program import syntax
from tensonde.program.frames import is_user
from tensonde.program.lines import line_at

_DRAWS = ("random.", "np.random.", "numpy.random.")
Function = tuple[Any, ast.FunctionDef, str]
"""Of which module, the definition, its file."""


def recomputed(failure: Failure) -> dict[str, Any] | None:
    """The condition in the checkpointed code that reads what this code itself sets, or that draws a random number of
    Python's or numpy's, whose states checkpoint does not keep."""
    for place in reversed(failure.places):
        if "torch/utils/checkpoint" not in place.path:
            continue
        for held in list(place.frame.f_locals.values()):
            for module, scope, path in _functions(held, 0):
                found = _decision(scope)
                if found is not None:
                    line, on, why = found
                    return {
                        "of": type(module).__name__ if module is not None else scope.name,
                        "module": failure.name_of(module) if module is not None else None,
                        "on": on,
                        "why": why,
                        "line": line_at(path, line),
                    }
    return None


def _functions(held: Any, depth: int) -> Iterator[Function]:
    """The user's code behind what was checkpointed: of a module, its forward and those of its parts; of a function, it
    and what it names and its closure holds."""
    if depth > 4:
        return
    if isinstance(held, nn.Module):
        for module in held.modules():
            yield from _function(type(module).forward, module)
    elif isinstance(getattr(held, "__self__", None), nn.Module):
        yield from _function(held.__func__, held.__self__)
        yield from _functions(held.__self__, depth + 1)
    elif isinstance(held, FunctionType):
        yield from _function(held, None)
        if is_user(held.__code__):
            for name in held.__code__.co_names:
                if isinstance(known := held.__globals__.get(name), nn.Module | FunctionType):
                    yield from _functions(known, depth + 1)
        for cell in held.__closure__ or ():
            try:
                yield from _functions(cell.cell_contents, depth + 1)
            except ValueError:  # not filled yet
                continue
    elif type(held).__name__ == "_CheckpointFrame":
        yield from _functions(held.recompute_fn, depth + 1)


def _function(function: Any, module: nn.Module | None) -> Iterator[Function]:
    code = getattr(function, "__code__", None)
    if code is not None and is_user(code):
        scope = syntax.function_of(code)
        if scope is not None:
            yield module, scope, code.co_filename


def _decision(scope: ast.FunctionDef) -> tuple[int, str, str] | None:
    owner = scope.args.args[0].arg if scope.args.args else ""
    changed = {name for name in _attributes(scope, ast.Store) if name.startswith(f"{owner}.")}
    for node in ast.walk(scope):
        if not isinstance(node, ast.If | ast.IfExp | ast.While):
            continue
        read = sorted(changed & set(_attributes(node.test, ast.Load)))
        if read:
            return node.test.lineno, read[0], "its first run changes"
        for inner in ast.walk(node.test):
            if isinstance(inner, ast.Call) and ast.unparse(inner.func).startswith(_DRAWS):
                return node.test.lineno, ast.unparse(inner)[:60], "gives another number when it is run again"
    return None


def _attributes(node: ast.AST, context: type[ast.expr_context]) -> list[str]:
    return [
        ast.unparse(inner)
        for inner in ast.walk(node)
        if isinstance(inner, ast.Attribute) and isinstance(inner.ctx, context) and isinstance(inner.value, ast.Name)
    ]
