"""The user's source files, asked for lines: where a name is bound, an attribute is set, a method returns."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType

from tensonde.adapters.torch.frames import display_path
from tensonde.model.site import SourceLine

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


def source_line(path: str, line: int) -> SourceLine:
    return SourceLine(display_path(path), line, linecache.getline(path, line).strip())


def scope_at(path: str, line: int) -> Scope | None:
    """The innermost function (or the file itself) that the line stands in."""
    tree = parse(path)
    best: Scope | None = tree
    if tree is not None:
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.lineno <= line <= (
                node.end_lineno or 0
            ):
                best = node
    return best


def function_of(code: CodeType) -> ast.FunctionDef | None:
    """The definition that a code object was made from."""
    tree = parse(code.co_filename)
    found = [
        node
        for node in (ast.walk(tree) if tree is not None else ())
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
    """The innermost loop that the line stands in."""
    best: ast.For | ast.While | None = None
    for node in statements(scope):
        if isinstance(node, ast.For | ast.While) and node.lineno <= line <= (node.end_lineno or 0):
            best = node
    return best


def class_named(path: str, name: str) -> ast.ClassDef | None:
    tree = parse(path)
    if tree is None:
        return None
    return next((node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == name), None)


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
