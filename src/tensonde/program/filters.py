"""Choices of a mapping's keys by an `in` test: `{k: v for k, v in ckpt.items() if k in own}`, or a loop that does the same."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Any

from tensonde.program.queries import names_at
from tensonde.program.syntax import covers, is_name, walk


def choices_at(path: str, number: int) -> Iterator[tuple[int, ast.expr]]:
    """Choices behind the `load_state_dict` on a line: line, and the mapping that is chosen from."""
    yield from _inline(path, number)
    for name in sorted(names_at(path, number)):
        yield from chosen(path, name, number)


def mapping_of(node: ast.expr, frame: FrameType) -> Mapping[str, Any] | None:
    """The dictionary that a name, or an entry of what it names, stands for; nothing of the user's is called."""
    found: Any = None
    if isinstance(node, ast.Name):
        found = frame.f_locals.get(node.id, frame.f_globals.get(node.id))
    elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        held = mapping_of(node.value, frame)
        found = held.get(node.slice.value) if type(held) is dict else None
    return found if isinstance(found, dict) else None


def _inline(path: str, number: int) -> Iterator[tuple[int, ast.expr]]:
    """A choice that is made in the call of `load_state_dict` itself."""
    for node in walk(path):
        if not isinstance(node, ast.Call) or not covers(node, number):
            continue
        if isinstance(node.func, ast.Attribute) and node.func.attr == "load_state_dict" and node.args:
            yield from _tested(node.args[0])


def chosen(path: str, name: str, before: int) -> Iterator[tuple[int, ast.expr]]:
    """Where the keys of `name` are chosen with an `in` test, last first, and the mapping that they are chosen from."""
    nodes = [n for n in walk(path) if getattr(n, "lineno", before + 1) <= before]
    for node in sorted(nodes, key=lambda n: -n.lineno):  # type: ignore[attr-defined]
        if isinstance(node, ast.Assign) and any(is_name(target, name) for target in node.targets):
            yield from _tested(node.value)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "update":
            if is_name(node.func.value, name) and len(node.args) == 1:
                given = node.args[0]
                yield from chosen(path, given.id, node.lineno - 1) if isinstance(given, ast.Name) else _tested(given)
        elif isinstance(node, ast.For) and (source := _items(node.iter)) is not None:
            for inner in ast.walk(node):
                if isinstance(inner, ast.If) and _membership(inner.test) and _puts(inner, name):
                    yield inner.lineno, source


def _tested(node: ast.expr) -> Iterator[tuple[int, ast.expr]]:
    """A comprehension over `items()` with an `in` test, inside of an expression."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.DictComp | ast.GeneratorExp | ast.ListComp) and len(inner.generators) == 1:
            source = _items(inner.generators[0].iter)
            if source is not None and any(_membership(test) for test in inner.generators[0].ifs):
                yield inner.lineno, source


def _items(node: ast.expr) -> ast.expr | None:
    """`ckpt` of `ckpt.items()`."""
    called = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "items"
    return node.func.value if called else None  # type: ignore[attr-defined]


def _membership(node: ast.expr) -> bool:
    return any(
        isinstance(part, ast.Compare) and any(isinstance(op, ast.In) for op in part.ops) for part in ast.walk(node)
    )


def _puts(node: ast.If, name: str) -> bool:
    """`name[k] = v` inside."""
    return any(
        isinstance(target, ast.Subscript) and is_name(target.value, name)
        for part in ast.walk(node)
        if isinstance(part, ast.Assign)
        for target in part.targets
    )
