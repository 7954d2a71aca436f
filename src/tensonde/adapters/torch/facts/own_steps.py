"""Where the step of an optimizer that the user wrote divides, and by what: the places where an update can become
infinite although the gradient is not."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from typing import Any

from tensonde.adapters.torch.facts import syntax
from tensonde.adapters.torch.facts.origins import line_at
from tensonde.adapters.torch.frames import is_user

MOST = 16
_DIVIDING = {"div": 0, "div_": 0, "true_divide": 0, "true_divide_": 0, "addcdiv": 1, "addcdiv_": 1}
"""Methods, and which argument is the divisor."""
_ROOTS = ("sqrt", "sqrt_", "norm", "rsqrt")


def divisions(optimizer: Any) -> list[dict[str, Any]]:
    """In the order of the lines, of all methods of its class: `kind` is `power` for a divisor `1 - b ** t`, which is 0 in
    a step that counts as 0, `root` for a square root or norm to which nothing is added, `guarded`
    for a sum, as with eps, else `other`."""
    step = inspect.unwrap(getattr(type(optimizer), "step", None) or divisions)
    code = getattr(step, "__code__", None)
    if code is None or not is_user(code):
        return []
    path = code.co_filename
    tree = syntax.tree(path)
    owner = next(
        (
            node
            for node in (ast.walk(tree) if tree is not None else ())
            if isinstance(node, ast.ClassDef) and node.lineno <= code.co_firstlineno <= (node.end_lineno or 0)
        ),
        None,
    )
    methods = [node for node in owner.body if isinstance(node, ast.FunctionDef)] if owner is not None else []
    found = [
        {"kind": _kind(divisor, method), **line_at(path, node.lineno)}
        for method in methods
        if method.name != "__init__"
        for node, divisor in _divided(method)
    ]
    return sorted(found, key=lambda entry: int(entry["line"]))[:MOST]


def _divided(method: ast.FunctionDef) -> Iterator[tuple[ast.expr, ast.expr]]:
    for node in ast.walk(method):
        match node:
            case ast.BinOp(op=ast.Div(), right=divisor) if not isinstance(divisor, ast.Constant):
                yield node, divisor
            case ast.Call(func=ast.Attribute(attr=name), args=args) if name in _DIVIDING:
                if len(args) > _DIVIDING[name] and not isinstance(args[_DIVIDING[name]], ast.Constant):
                    yield node, args[_DIVIDING[name]]


def _kind(divisor: ast.expr, method: ast.FunctionDef) -> str:
    if isinstance(divisor, ast.Name):  # of a name, what it was last given
        given = [
            n.value
            for n in ast.walk(method)
            if isinstance(n, ast.Assign)
            and n.lineno < divisor.lineno
            and any(isinstance(t, ast.Name) and t.id == divisor.id for t in n.targets)
        ]
        divisor = given[-1] if given else divisor
    match divisor:
        case ast.BinOp(left=ast.Constant(value=1 | 1.0), op=ast.Sub(), right=ast.BinOp(op=ast.Pow())):
            return "power"
        case ast.Call(func=ast.Attribute(attr=name)) if name in _ROOTS:
            return "root"
        case ast.BinOp(op=ast.Pow(), right=ast.Constant(value=0.5)):
            return "root"
        case ast.BinOp(op=ast.Add()):
            return "guarded"
    return "other"
