"""The user's own autograd functions: whether their backward uses the gradient that it is given."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

import torch

from tensonde.adapters.torch.facts import syntax
from tensonde.adapters.torch.facts.origins import line_at
from tensonde.adapters.torch.frames import is_user


def careless() -> list[dict[str, Any]]:
    """Those whose backward reads none of its gradients and returns something all the same."""
    found = []
    for kind in list(_all(torch.autograd.Function))[:256]:
        code = getattr(vars(kind).get("backward"), "__func__", None)
        code = getattr(code, "__code__", None)
        if code is None or not is_user(code):
            continue
        number = _ignoring(code.co_filename, code.co_name, code.co_firstlineno)
        if number is not None:
            found.append({"name": kind.__name__, "line": line_at(code.co_filename, number)})
    return found[:16]


def _all(kind: type) -> Iterator[type]:
    below: list[type] = kind.__subclasses__()
    for inner in below:
        yield inner
        yield from _all(inner)


def _ignoring(path: str, name: str, first: int) -> int | None:
    """The line of what such a backward returns."""
    tree = syntax.tree(path)
    for node in ast.walk(tree) if tree is not None else ():
        starts = {node.lineno, *(d.lineno for d in node.decorator_list)} if isinstance(node, ast.FunctionDef) else set()
        if not isinstance(node, ast.FunctionDef) or node.name != name or first not in starts:
            continue
        given = {argument.arg for argument in node.args.args[1:]}
        given |= {node.args.vararg.arg} if node.args.vararg else set()
        if any(isinstance(part, ast.Name) and part.id in given for part in ast.walk(node)):
            return None
        returned = [part for part in ast.walk(node) if isinstance(part, ast.Return) and part.value is not None]
        computed = [part.lineno for part in returned if any(isinstance(p, ast.Name) for p in ast.walk(part))]
        return max(computed, default=None) if given else None
    return None
