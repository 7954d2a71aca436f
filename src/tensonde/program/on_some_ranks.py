"""Statements that only some ranks run."""

from __future__ import annotations

import ast
from functools import lru_cache

from tensonde.program.surroundings import reads_rank
from tensonde.program.syntax import covers, scope_at, statements

_TELLING = frozenset(
    ("print", "log", "info", "debug", "warning", "write", "save", "dump", "append", "extend", "set_description", "set_postfix", "flush", "mkdir",
     "makedirs", "item", "format", "join", "add_scalar", "barrier", "time", "perf_counter", "monotonic", "len", "float", "int", "str", "round", "update")
)  # fmt: skip
"""Calls that tell of a training and change nothing in it."""


@lru_cache(maxsize=256)
def under_rank(path: str, line: int) -> int:
    """The first line in the loops around this one that only some ranks run, under a condition that reads the rank, and that does more than tell of the
    training; 0 where there is none."""
    scope = scope_at(path, line)
    for node in statements(scope) if scope is not None else ():
        if isinstance(node, ast.For | ast.While) and covers(node, line):
            for inner in statements(node):
                if isinstance(inner, ast.If) and reads_rank(inner.test) and not covers(inner, line):
                    found = [one.lineno for one in inner.body if _does(one)]
                    if found:
                        return found[0]
    return 0


def _does(statement: ast.stmt) -> bool:
    calls = [_name(node.func) for node in ast.walk(statement) if isinstance(node, ast.Call)]
    writes = isinstance(statement, ast.AugAssign) or any(name.endswith("_") for name in calls)
    return writes or any(name not in _TELLING for name in calls)


def _name(function: ast.expr) -> str:
    return (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )
