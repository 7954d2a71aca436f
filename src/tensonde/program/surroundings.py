"""The loops and conditions that a line stands in, and where what a loop goes over comes from. As JSON, for a recording."""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import Any

from tensonde.program.syntax import bindings, covers, scope_at, statements, walk

MOST = 8
_DEPTH = 6
_RANKS = frozenset(("RANK", "LOCAL_RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"))


@lru_cache(maxsize=1024)
def surroundings(path: str, line: int) -> list[dict[str, Any]]:
    """Outermost first, within the function of the line: `what` is `for`, `while` or `if`, `line` and `end` are its extent.

    The answer is shared: do not change it. A loop has the lines of its own `breaks`. `parting` is the line from which on a loop or a condition can differ between the ranks: the
    first on the way back from its expression that reads a rank; 0 where none does. `made` is the line that makes what a `for` goes over.
    """
    scope = scope_at(path, line)
    if scope is None:
        return []
    found = []
    for node in statements(scope):
        if isinstance(node, ast.For | ast.While | ast.If) and node.lineno <= line <= (node.end_lineno or 0):
            asked = node.iter if isinstance(node, ast.For) else node.test
            one: dict[str, Any] = {
                "what": type(node).__name__.lower(),
                "line": node.lineno,
                "end": node.end_lineno or node.lineno,
                "parting": _parting(scope, asked, node.lineno, _DEPTH),
            }
            if not isinstance(node, ast.If):
                one["breaks"] = [inner.lineno for inner in _own(node) if isinstance(inner, ast.Break)]
            if isinstance(node, ast.For):
                one["made"] = _made(scope, asked, node.lineno)
            found.append(one)
    return found[-MOST:]


def _own(loop: ast.For | ast.While) -> list[ast.stmt]:
    """The statements of a loop, without those of loops inside it."""
    inside = [node for node in statements(loop) if isinstance(node, ast.For | ast.While)]
    covered = [(node.lineno, node.end_lineno or 0) for node in inside]
    return [node for node in statements(loop) if not any(a <= node.lineno <= b for a, b in covered)]


def _parting(scope: ast.AST, asked: ast.expr, line: int, depth: int) -> int:
    """Breadth first: what reads a rank itself counts before what it is made of."""
    if reads_rank(asked):
        return line
    if depth == 0:
        return 0
    for name in _names(asked):
        for binding in reversed([b for b in bindings(scope, name) if b.line < line]):
            if found := _parting(scope, binding.value, binding.line, depth - 1):
                return found
    return 0


def _made(scope: ast.AST, asked: ast.expr, line: int) -> int:
    """`loader` of `for x, y in loader` and of `enumerate(loader)`."""
    for name in _names(asked):
        before = [binding for binding in bindings(scope, name) if binding.line < line and not binding.loop]
        if before:
            return before[-1].line
    return 0


def _names(asked: ast.expr) -> list[str]:
    return list(dict.fromkeys(node.id for node in ast.walk(asked) if isinstance(node, ast.Name)))


def reads_rank(asked: ast.expr) -> bool:
    for node in ast.walk(asked):
        name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
        text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""  # os.environ["RANK"]
        if "rank" in name.lower() or name in ("is_main_process", "is_master", "is_main") or text in _RANKS:
            return True
    return False


def statement_after(path: str, line: int) -> int:
    """The line of the statement that runs when the one at a line, and the loop whose last statement it is, are done; 0 where none follows."""
    scope = scope_at(path, line)
    return _after(scope, line) if scope is not None else 0


def _after(block: ast.AST, line: int) -> int:
    for field in ("body", "orelse", "finalbody"):
        inside: list[ast.stmt] = getattr(block, field, None) or []
        for k, node in enumerate(inside):
            if node.lineno <= line <= (node.end_lineno or 0):
                return _after(node, line) or (inside[k + 1].lineno if k + 1 < len(inside) else 0)
    return 0


def skips(path: str, line: int) -> list[int]:
    """Lines that may leave out the rest of a batch before the program comes to this line: a `continue` under a condition in the loops around it; in
    a program whose loop is a library's, a `return` without a value under a condition in `training_step`."""
    scope = scope_at(path, line)
    found: list[int] = []
    for node in statements(scope) if scope is not None else ():
        if isinstance(node, ast.For | ast.While) and node.lineno <= line <= (node.end_lineno or 0):
            found += [one.lineno for one in _own(node) if isinstance(one, ast.Continue) and one.lineno < line]
    if found:
        return sorted(set(found))
    for part in walk(path):
        if isinstance(part, ast.FunctionDef) and part.name == "training_step":
            returns = [one for one in statements(part) if isinstance(one, ast.Return) and one not in part.body]
            found += [one.lineno for one in returns if one.value is None or is_none(one.value)]
    return sorted(set(found))


def is_none(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is None


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
