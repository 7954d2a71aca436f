"""Statements that change gradients by hand."""

from __future__ import annotations

import ast

from tensonde.program.syntax import scope_at, statements, walk

_CHANGING = ("div_", "mul_", "copy_", "add_", "sub_", "clamp_")


def rewrite_between(path: str, first: int, last: int) -> int | None:
    """The first line between these two, in the function of the second or in one of the file that is called there, that scales, replaces or writes
    to a `.grad`; None where there is none."""
    scope = scope_at(path, last)
    for node in statements(scope) if scope is not None else ():
        if not first < node.lineno < last:
            continue
        if (line := _rewrite(node)) is not None:
            return line
        call = node.value if isinstance(node, ast.Expr | ast.Assign) else None
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
            inside = [one for one in walk(path) if isinstance(one, ast.FunctionDef) and one.name == call.func.id]
            found = [line for one in inside for part in statements(one) if (line := _rewrite(part)) is not None]
            if found:
                return found[0]
    return None


def _rewrite(node: ast.stmt) -> int | None:
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


_SAME = ("to_local", "detach", "view", "flatten", "data")


def _is_gradient(node: ast.expr) -> bool:
    """`p.grad`, `p.grad.data`, `p.grad[...]`, `p.grad.to_local()`."""
    while True:
        if isinstance(node, ast.Call):
            node = node.func
        elif isinstance(node, ast.Subscript) or (isinstance(node, ast.Attribute) and node.attr in _SAME):
            node = node.value
        else:
            return isinstance(node, ast.Attribute) and node.attr == "grad"
