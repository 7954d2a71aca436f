"""Two variables that belong together, put into two different random orders by the program's own lines.

`x = x[torch.randperm(n)]` and `y = y[torch.randperm(n)]`, or a shuffle of each. Only what the source says beyond
doubt: both are reordered once, in the same function, by two draws without a seed set in between (the same seed twice
gives the same order), and are then used as a pair. Or both at once: `return x[one], y[another]`.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tensonde.program.lines import line_at
from tensonde.program.syntax import called, parse

_DRAWS = ("randperm", "permutation")
_SEEDS = ("seed", "manual_seed", "default_rng", "RandomState", "set_state", "setstate", "set_rng_state")


@dataclass(frozen=True, slots=True)
class Reordering:
    """`draw` is the line of the random order that it was put into."""

    name: str
    line: int
    draw: int


@functools.lru_cache(maxsize=8)
def apart(paths: tuple[str, ...]) -> dict[str, Any] | None:
    """The first such pair in these files."""
    for path in paths:
        tree = parse(path)
        for scope in _scopes(tree) if tree is not None else ():
            found = _in_scope(scope)
            if found is not None:
                first, second = found
                return {
                    "names": [first.name, second.name],
                    "line": line_at(path, second.line),
                    "other": line_at(path, first.line),
                }
    return None


def _scopes(tree: ast.Module) -> Iterator[list[ast.stmt]]:
    yield tree.body
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            yield node.body


def _in_scope(body: list[ast.stmt]) -> tuple[Reordering, Reordering] | None:
    orders: dict[str, int] = {}
    found: list[Reordering] = []
    for statement in body:
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target = statement.targets[0]
            if isinstance(target, ast.Name):
                if _draw(statement.value):
                    orders[target.id] = statement.lineno
                found += _indexed(target.id, statement, orders)
        elif isinstance(statement, ast.Expr):
            found += _shuffled(statement)
        together = _together(statement, orders)
        if together is not None:
            return together
    for k, first in enumerate(found):
        for second in found[k + 1 :]:
            alone = sum(r.name in (first.name, second.name) for r in found) == 2
            if (
                first.name != second.name
                and first.draw != second.draw
                and alone
                and not _seeded(body, first.line, second.line)
                and _paired(body, first.name, second.name, second.line)
            ):
                return first, second
    return None


def _draw(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and called(node) in _DRAWS


def _indexed(name: str, statement: ast.Assign, orders: dict[str, int]) -> list[Reordering]:
    """`x = x[order]`, with the order drawn here or before."""
    value = statement.value
    if not (isinstance(value, ast.Subscript) and isinstance(value.value, ast.Name) and value.value.id == name):
        return []
    if _draw(value.slice):
        return [Reordering(name, statement.lineno, statement.lineno)]
    if isinstance(value.slice, ast.Name) and value.slice.id in orders:
        return [Reordering(name, statement.lineno, orders[value.slice.id])]
    return []


def _together(statement: ast.stmt, orders: dict[str, int]) -> tuple[Reordering, Reordering] | None:
    """`return x[one], y[another]`, and the like as arguments of one call: two things, each in an order of its own."""
    if not isinstance(statement, ast.Return | ast.Assign | ast.Expr) or statement.value is None:
        return None
    value = statement.value
    parts = value.elts if isinstance(value, ast.Tuple) else value.args if isinstance(value, ast.Call) else []
    taken: list[tuple[str, str, ast.Subscript]] = []
    for part in parts:
        if isinstance(part, ast.Subscript) and isinstance(part.value, ast.Name | ast.Attribute):
            drawn = _draw(part.slice)
            named = isinstance(part.slice, ast.Name) and part.slice.id in orders
            if drawn or named:
                order = f"drawn at {part.slice.col_offset}" if drawn else ast.unparse(part.slice)
                taken.append((ast.unparse(part.value), order, part))
    if len(taken) != 2 or len(parts) != 2:
        return None
    (a, first, one), (b, second, two) = taken
    if a == b or first == second:
        return None
    return Reordering(a, one.lineno, one.lineno), Reordering(b, two.lineno, two.lineno)


def _shuffled(statement: ast.Expr) -> list[Reordering]:
    """`random.shuffle(x)`."""
    call = statement.value
    if isinstance(call, ast.Call) and called(call) == "shuffle" and len(call.args) == 1:
        given = call.args[0]
        if isinstance(given, ast.Name):
            return [Reordering(given.id, statement.lineno, statement.lineno)]
    return []


def _seeded(body: list[ast.stmt], first: int, last: int) -> bool:
    return any(
        isinstance(node, ast.Call) and called(node) in _SEEDS and first < node.lineno <= last
        for statement in body
        for node in ast.walk(statement)
    )


def _paired(body: list[ast.stmt], a: str, b: str, after: int) -> bool:
    """Both are given to one call or stand in one tuple (returned, yielded, gone through), by themselves or indexed alike."""
    for statement in body:
        if statement.lineno <= after:
            continue
        for node in ast.walk(statement):
            if isinstance(node, ast.Call):
                parts = node.args
            elif isinstance(node, ast.Tuple) and isinstance(node.ctx, ast.Load):
                parts = node.elts
            else:
                continue
            if {a, b} <= {part.id for part in parts if isinstance(part, ast.Name)}:
                return True
            taken = {
                part.value.id: ast.dump(part.slice)
                for part in ast.walk(node)
                if isinstance(part, ast.Subscript) and isinstance(part.value, ast.Name)
            }
            if a in taken and taken.get(a) == taken.get(b):
                return True
    return False
