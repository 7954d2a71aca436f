"""Statements that change gradients by hand."""

from __future__ import annotations

import ast

from tensonde.program.syntax import scope_at, statements

_CHANGING = ("div_", "mul_", "copy_", "add_", "sub_", "clamp_")


def rewrite_between(path: str, first: int, last: int) -> int | None:
    """The first line between these two, in the function of the second, that scales, replaces or writes to a `.grad`; None where there is none."""
    scope = scope_at(path, last)
    for node in statements(scope) if scope is not None else ():
        if not first < node.lineno < last:
            continue
        if isinstance(node, ast.AugAssign | ast.Assign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(_is_gradient(target) for target in targets) and not _clears(node):
                return node.lineno
        elif isinstance(node, ast.Expr) and _changes(node.value):
            return node.lineno
    return None


def _changes(node: ast.expr) -> bool:
    """`p.grad.mul_(...)`."""
    call = node.func if isinstance(node, ast.Call) else None
    return isinstance(call, ast.Attribute) and call.attr in _CHANGING and _is_gradient(call.value)


def _clears(node: ast.AugAssign | ast.Assign) -> bool:
    return isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)


def _is_gradient(node: ast.expr) -> bool:
    """`p.grad`, `p.grad.data`, `p.grad[...]`."""
    while isinstance(node, ast.Subscript) or (isinstance(node, ast.Attribute) and node.attr == "data"):
        node = node.value
    return isinstance(node, ast.Attribute) and node.attr == "grad"
