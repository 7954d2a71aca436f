"""Lines of the program that divide by a large constant, as images are divided by 255."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable, Iterator
from typing import Any

from tensonde.adapters.torch.facts import syntax
from tensonde.adapters.torch.facts.origins import line_at

LARGE = 100.0
MOST = 32
_METHODS = ("div", "div_", "divide", "true_divide")


def divisions(files: Iterable[str]) -> list[dict[str, Any]]:
    """As it stands in the facts: the line, the number, and the function that the line is in."""
    return [
        {"line": line_at(path, number), "by": by, "function": owner}
        for path in files
        for number, by, owner in _in_file(path)
    ][:MOST]


@functools.lru_cache(maxsize=32)
def _in_file(path: str) -> list[tuple[int, float, str]]:
    parsed = syntax.tree(path)
    found = []
    for owner, node in _nodes(parsed, "") if parsed is not None else ():
        by = _divisor(node)
        if by is not None and by >= LARGE:
            found.append((int(getattr(node, "lineno", 0)), by, owner))
    return found


def _nodes(node: ast.AST, owner: str) -> Iterator[tuple[str, ast.AST]]:
    for inner in ast.iter_child_nodes(node):
        yield owner, inner
        named = isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef)
        yield from _nodes(inner, inner.name if named else owner)  # type: ignore[attr-defined]


def _divisor(node: ast.AST) -> float | None:
    given: ast.expr | None = None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        given = node.right
    elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Div):
        given = node.value
    elif (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _METHODS and node.args
    ):
        given = node.args[-1]
    number = given.value if isinstance(given, ast.Constant) else None
    return float(number) if isinstance(number, int | float) and not isinstance(number, bool) else None
