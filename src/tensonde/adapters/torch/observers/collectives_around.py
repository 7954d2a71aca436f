"""What stands around the line of a backward pass and can keep a rank from it, or keep its gradients from being reduced."""

from __future__ import annotations

import ast

from tensonde.program.syntax import covers, scope_at, statements


def caught(path: str, line: int) -> list[int]:
    """Lines of the handlers that go on with the next batch where this one fails: `except` of a `try` around the line, inside a loop around it,
    that neither raises nor leaves the loop."""
    scope = scope_at(path, line)
    around = [node for node in statements(scope) if covers(node, line)] if scope is not None else []
    loops = [node for node in around if isinstance(node, ast.For | ast.While)]
    found = []
    for node in around:
        tried = isinstance(node, ast.Try) and node.body[0].lineno <= line <= (node.body[-1].end_lineno or 0)
        if not isinstance(node, ast.Try) or not tried or not any(covers(loop, node.lineno) for loop in loops):
            continue
        found += [handler.lineno for handler in node.handlers if not _leaves(handler)]
    return found


def _leaves(handler: ast.ExceptHandler) -> bool:
    return any(isinstance(node, ast.Raise | ast.Break | ast.Return) for node in ast.walk(handler))


def unsynchronised(path: str, line: int) -> int:
    """The line of the innermost `with` around this one that has `no_sync` in it, perhaps under a condition; 0 where there is none."""
    scope = scope_at(path, line)
    found = [
        node.lineno
        for node in (statements(scope) if scope is not None else ())
        if isinstance(node, ast.With)
        and covers(node, line)
        and any(
            isinstance(part, ast.Attribute) and part.attr == "no_sync" for item in node.items for part in ast.walk(item)
        )
    ]
    return found[-1] if found else 0
