"""The syntax trees of the user's sources: files, and notebook cells, which only `linecache` has."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType

Scope = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Binding:
    """A name gets a value: by assignment (also `+=`) or as the target of a loop, at `path` inside of `value`.

    For `for k, (x, y) in enumerate(loader)`, y is bound to `enumerate(loader)` at path (1, 1).
    """

    line: int
    value: ast.expr
    path: tuple[int, ...]
    loop: bool = False
    augmented: bool = False


@lru_cache(maxsize=64)
def parse(path: str) -> ast.Module | None:
    """The file's syntax tree; None where it cannot be read, as for code typed into a prompt."""
    text = "".join(linecache.getlines(path))
    try:
        return ast.parse(text) if text else None
    except (SyntaxError, ValueError, RecursionError):
        return None


def walk(path: str) -> tuple[ast.AST, ...]:
    """Every node of a file; none where it cannot be read."""
    tree = parse(path)
    return _nodes(tree) if tree is not None else ()


def scope_at(path: str, line: int) -> Scope | None:
    """The innermost function (or the file itself) that the line stands in."""
    best: Scope | None = parse(path)
    for node in _functions(best) if best is not None else ():
        if node.lineno <= line <= (node.end_lineno or 0):
            best = node
    return best


# Kept: for one step that experiments ask, a file is walked hundreds of times.
@lru_cache(maxsize=64)
def _nodes(tree: ast.Module) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(tree))


@lru_cache(maxsize=64)
def _functions(tree: ast.Module) -> tuple[ast.FunctionDef | ast.AsyncFunctionDef, ...]:
    return tuple(node for node in _nodes(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def function_of(code: CodeType) -> ast.FunctionDef | None:
    """The definition that a code object was made from."""
    found = [
        node
        for node in walk(code.co_filename)
        if isinstance(node, ast.FunctionDef) and node.name == code.co_name and node.lineno >= code.co_firstlineno
    ]
    return min(found, key=lambda node: node.lineno, default=None)


def statements(scope: ast.AST) -> Iterator[ast.stmt]:
    """Every statement of a scope in order, without those of functions and classes inside it."""
    for field in ("body", "orelse", "finalbody", "handlers"):
        for inner in getattr(scope, field, ()):
            if isinstance(inner, ast.stmt):
                yield inner
                if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                    continue
            yield from statements(inner)


def bindings(scope: ast.AST, name: str) -> list[Binding]:
    """Where a name is bound in a scope, in order."""
    found: list[Binding] = []
    for node in statements(scope):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                found += [Binding(node.lineno, node.value, path) for path in _paths(target, name)]
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            found += [Binding(node.lineno, node.value, path) for path in _paths(node.target, name)]
        elif isinstance(node, ast.AugAssign):
            found += [Binding(node.lineno, node.value, path, augmented=True) for path in _paths(node.target, name)]
        elif isinstance(node, ast.For):
            found += [Binding(node.lineno, node.iter, path, loop=True) for path in _paths(node.target, name)]
    return found


def _paths(target: ast.expr, name: str, at: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    if (
        ast.unparse(target) == name
        if isinstance(target, ast.Attribute)
        else isinstance(target, ast.Name) and target.id == name
    ):
        yield at
    elif isinstance(target, ast.Tuple | ast.List):
        for k, inner in enumerate(target.elts):
            yield from _paths(inner, name, (*at, k))


def loop_around(scope: ast.AST, line: int) -> ast.For | ast.While | None:
    """The innermost loop of a scope, or of a function inside it, that the line stands in."""
    loops = [
        node
        for node in ast.walk(scope)
        if isinstance(node, ast.For | ast.While) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    return max(loops, key=lambda node: node.lineno, default=None)


def class_named(path: str, name: str) -> ast.ClassDef | None:
    return next((node for node in walk(path) if isinstance(node, ast.ClassDef) and node.name == name), None)


def function_named(path: str, name: str) -> ast.FunctionDef | None:
    tree = parse(path)
    return (
        next((node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name), None)
        if tree
        else None
    )


def method(owner: ast.ClassDef, name: str) -> ast.FunctionDef | None:
    return next((node for node in owner.body if isinstance(node, ast.FunctionDef) and node.name == name), None)


def attribute_set(owner: ast.ClassDef, attribute: str) -> list[Binding]:
    """Where the methods of a class set `self.attribute`."""
    found: list[Binding] = []
    for node in owner.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.args.args:
            found += bindings(node, f"{node.args.args[0].arg}.{attribute}")
    return found


def reads(node: ast.AST, name: str) -> bool:
    return any(
        isinstance(inner, ast.Name) and inner.id == name and isinstance(inner.ctx, ast.Load) for inner in ast.walk(node)
    )


def spelled(node: ast.expr) -> str:
    """`a.b` of `a.b[0]`: names and attributes only, "" for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{spelled(node.value)}.{node.attr}"
    if isinstance(node, ast.Subscript):
        return spelled(node.value)
    return ""


def called(node: ast.Call) -> str:
    """The last name of a called function: `c` of `a.b.c(...)`."""
    return (
        node.func.attr
        if isinstance(node.func, ast.Attribute)
        else node.func.id
        if isinstance(node.func, ast.Name)
        else ""
    )


def is_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def is_own(node: ast.AST, attribute: str) -> bool:
    """Whether a node is `self.attribute`."""
    return isinstance(node, ast.Attribute) and node.attr == attribute and is_name(node.value, "self")


def targets(node: ast.AST) -> list[ast.expr]:
    """The targets that an assignment of any kind gives a value to; none of another statement."""
    if isinstance(node, ast.Assign):
        return node.targets
    return [node.target] if isinstance(node, ast.AnnAssign | ast.AugAssign) else []


def covers(node: ast.AST, line: int) -> bool:
    """Whether a line is one of a node's."""
    first = getattr(node, "lineno", None)
    return first is not None and first <= line <= (getattr(node, "end_lineno", None) or first)
