"""Loops that go through data, and steps in them that take the same batch each time."""

from __future__ import annotations

import ast

from tensonde.program.syntax import called, is_name, loop_around, parse, reads


def same_each_time(path: str, line: int) -> int | None:
    """The line in the loop around a line that takes the first batch again each time: `next(...)` of an iterator that is made there, or the loop
    itself, where it goes through data (or in strides over their indices) and its body never reads what it is given; None where there is none."""
    tree = parse(path)
    loop = loop_around(tree, line) if tree is not None else None
    if loop is None:
        return None
    for node in ast.walk(loop):
        if isinstance(node, ast.Call) and called(node) == "next" and node.args and isinstance(node.args[0], ast.Call):
            return node.lineno
    if not isinstance(loop, ast.For) or not _goes_through(loop.iter):
        return None
    names = [part.id for part in ast.walk(loop.target) if isinstance(part, ast.Name)]
    used = [name for name in names if any(reads(statement, name) for statement in loop.body)]
    return loop.lineno if names and not used and not all(name.startswith("_") for name in names) else None


def _goes_through(given: ast.expr) -> bool:
    """More than counting: `range(0, n, size)`, a loader, a function of batches."""
    if isinstance(given, ast.Call) and called(given) == "range":
        return len(given.args) == 3
    return not isinstance(given, ast.Call) or not any(is_name(given.func, name) for name in ("count", "trange"))
