"""Two variables that belong together, put into two different random orders by the program's own lines.

`x = x[torch.randperm(n)]` and `y = y[torch.randperm(n)]`, or a shuffle of each. Only what the source says beyond
doubt: both are reordered once, in the same function, by two draws without a seed set in between (the same seed twice
gives the same order), and are then used as a pair. Or both at once: `return x[one], y[another]`.

Also without chance: of one list of samples, inputs are taken in sorted order and labels in the list's own; or two
things stand side by side, one indexed by `rows`, the other by `rows` sorted.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tensonde.program.lines import line_at
from tensonde.program.syntax import called, is_name, parse, statements

_DRAWS = ("randperm", "permutation")
_ORDERS = ("sorted", "reversed")
_SORTS = ("sort", "argsort", "sorted")
"""Not `flip` and `roll`, which also make pairs that do not belong together on purpose (negatives)."""
_ORDERLESS = (
    "max",
    "min",
    "sum",
    "set",
    "frozenset",
    "sorted",
    "any",
    "all",
    "len",
    "Counter",
    "dict",
    "mean",
    "fmean",
)
"""Calls for which it does not matter in which order they are given something."""
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
        certain = _walked_apart(tree) or _indexed_apart(tree) if tree is not None else None
        if certain is not None:
            names, order, line, other = certain
            return {"names": names, "order": order, "line": line_at(path, line), "other": line_at(path, other)}
    return None


# -- one of two is sorted --------------------------------------------------------------------------

Certain = tuple[list[str], str, int, int]
"""The names, how one of them is ordered, its line, and that of the other."""


@dataclass(frozen=True, slots=True)
class _Walk:
    """A comprehension takes some fields of the samples of `source`, which are in this order."""

    source: str
    order: str
    fields: frozenset[int]
    names: tuple[str, ...]
    line: int


def _walked_apart(tree: ast.Module) -> Certain | None:
    """Two comprehensions of one function take different fields of the samples of one list, in two orders."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef) or not _gives_several(node):
            continue
        walks = _walks(node)
        for one in walks:
            for other in walks:
                if one.source == other.source and one.order and not other.order and not one.fields & other.fields:
                    alike = sum(walk.source == one.source and bool(walk.order) for walk in walks)
                    odd, rest = (one, other) if 2 * alike <= len(walks) else (other, one)
                    return [*one.names, *other.names], one.order, odd.line, rest.line
    return None


def _gives_several(function: ast.FunctionDef) -> bool:
    return any(
        isinstance(node, ast.Return | ast.Yield) and isinstance(node.value, ast.Tuple) and len(node.value.elts) >= 2
        for node in ast.walk(function)
    )


def _walks(function: ast.FunctionDef) -> list[_Walk]:
    known: dict[str, tuple[str, str]] = {}
    """Names of lists: which list it is, and in which order."""
    found: list[_Walk] = []
    for statement in statements(function):
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            continue
        loose = {id(part) for call in ast.walk(statement) if _orderless(call) for part in ast.walk(call)}
        for node in ast.walk(statement) if not hasattr(statement, "body") else ():
            if isinstance(node, ast.ListComp | ast.GeneratorExp) and id(node) not in loose:
                found += _walk(node, known)
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target = statement.targets[0]
            if isinstance(target, ast.Name):
                known[target.id] = _ordered(statement.value, known) or (f"{target.id} of {statement.lineno}", "")
        elif isinstance(statement, ast.Expr) and isinstance(call := statement.value, ast.Call):
            match call.func:
                case ast.Attribute(value=ast.Name(id=name), attr="sort" | "reverse" as how):
                    known[name] = (known.get(name, (name, ""))[0], f"{how} in line {statement.lineno}")
    return found


def _walk(node: ast.ListComp | ast.GeneratorExp, known: dict[str, tuple[str, str]]) -> list[_Walk]:
    if len(node.generators) != 1 or node.generators[0].ifs:
        return []
    target, held = node.generators[0].target, _ordered(node.generators[0].iter, known)
    if held is None or not isinstance(target, ast.Tuple) or not all(isinstance(e, ast.Name) for e in target.elts):
        return []
    used = {part.id for part in ast.walk(node.elt) if isinstance(part, ast.Name)}
    taken = [(k, e.id) for k, e in enumerate(target.elts) if isinstance(e, ast.Name) and e.id in used]
    if not taken:
        return []
    return [_Walk(*held, frozenset(k for k, _ in taken), tuple(name for _, name in taken), node.lineno)]


def _ordered(node: ast.expr, known: dict[str, tuple[str, str]]) -> tuple[str, str] | None:
    """Which list this is, and in which order; None of anything else."""
    match node:
        case ast.Name(id=name):
            return known.get(name, (name, ""))
        case ast.Call(func=ast.Name(id=how), args=[ast.Name(id=name), *_]) if how in _ORDERS:
            return known.get(name, (name, ""))[0], how
        case ast.Subscript(value=ast.Name(id=name), slice=ast.Slice() as part) if _backwards(part):
            return known.get(name, (name, ""))[0], "reversed"
    return None


def _backwards(part: ast.expr) -> bool:
    """`[::-1]`"""
    match part:
        case ast.Slice(lower=None, upper=None, step=ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=1))):
            return True
    return False


def _orderless(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and called(node) in _ORDERLESS


def _indexed_apart(tree: ast.Module) -> Certain | None:
    """`return x[rows], y[sort(rows)]`: two things side by side, one indexed by a name, the other by the same name reordered."""
    for node in ast.walk(tree):
        value = node.value if isinstance(node, ast.Return | ast.Yield) else node
        parts = value.elts if isinstance(value, ast.Tuple) else value.args if isinstance(value, ast.Call) else []
        taken = [p for p in parts if isinstance(p, ast.Subscript) and isinstance(p.value, ast.Name | ast.Attribute)]
        if len(taken) != 2 or ast.dump(taken[0].value) == ast.dump(taken[1].value):
            continue
        for plain, other in (taken, taken[::-1]):
            if isinstance(plain.slice, ast.Name) and _reorders(other.slice, plain.slice.id):
                names = [ast.unparse(plain.value), ast.unparse(other.value)]
                return names, ast.unparse(other.slice), other.lineno, plain.lineno
    return None


def _reorders(index: ast.expr, name: str) -> bool:
    """The rows of `name`, in another order."""
    if isinstance(index, ast.Name) or not any(is_name(part, name) for part in ast.walk(index)):
        return False
    return any(isinstance(part, ast.Call) and called(part) in _SORTS for part in ast.walk(index))


# -- two random orders -------------------------------------------------------------------------------


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
