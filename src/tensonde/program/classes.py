"""The user's classes in their source: the definition of a class, where it sets an attribute, what a method gives."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from types import CodeType
from typing import Any

from tensonde.program.frames import is_framework, is_user
from tensonde.program.lines import Json, line_at
from tensonde.program.syntax import (
    attribute_set,
    bindings,
    class_named,
    covers,
    is_name,
    is_own,
    method,
    scope_at,
    spelled,
    statements,
    targets,
    walk,
)

Made = tuple[str, ast.expr, int]
"""File, expression, line."""

_COPIES = ("copy", "clone", "array", "tensor", "deepcopy", "astype")
_PUTS = ("append", "appendleft", "extend", "add", "update")


def _codes(kind: type) -> Iterator[CodeType]:
    """The code of a class's own functions."""
    for held in vars(kind).values():
        if callable(held) or hasattr(held, "__func__"):
            code = getattr(inspect.unwrap(getattr(held, "__func__", held)), "__code__", None)
            if code is not None:
                yield code


def source_file(kind: type) -> str | None:
    """Where a class of the user's is written. Its methods know best: `__main__` is not always the script."""
    if kind.__module__ == "builtins" or is_framework(kind.__module__):
        return None
    return next((code.co_filename for code in _codes(kind) if is_user(code)), None)


def class_of(kind: type) -> tuple[str, ast.ClassDef] | None:
    """File and definition of a class that has methods; of anybody's."""
    for code in _codes(kind):
        for node in walk(code.co_filename):
            if isinstance(node, ast.ClassDef) and node.name == kind.__name__ and covers(node, code.co_firstlineno):
                return code.co_filename, node
    return None


def user_class(kind: type) -> tuple[str, ast.ClassDef] | None:
    """File and definition of a class of the user's."""
    path = source_file(kind)
    owner = class_named(path, kind.__name__) if path else None
    return (path, owner) if path is not None and owner is not None else None


def user_method(kind: type, name: str) -> tuple[str, ast.FunctionDef] | None:
    """File and definition of a method that a class of the user's has itself."""
    owner = user_class(kind)
    found = method(owner[1], name) if owner is not None else None
    return (owner[0], found) if owner is not None and found is not None else None


def attribute_made(kind: type, name: str) -> Made | None:
    """Where a class of the user's sets an attribute."""
    for base in kind.__mro__:
        owner = user_class(base)
        for found in attribute_set(owner[1], name) if owner is not None else ():
            return owner[0], found.value, found.line  # type: ignore[index]
    return None


def attribute_line(kind: type, name: str) -> Json | None:
    """The same, as facts hold it."""
    found = attribute_made(kind, name)
    return None if found is None else line_at(found[0], found[2])


def last_set(kind: type, name: str, *, running: bool = False) -> Json | None:
    """The last line of a class that sets an attribute to something else than None; with `running`, one outside of
    `__init__`, and also one that puts an item into it."""
    for base in kind.__mro__:
        owner = user_class(base)
        lines: list[int] = []
        for function in owner[1].body if owner is not None else ():
            if not isinstance(function, ast.FunctionDef) or not function.args.args:
                continue
            if running and function.name == "__init__":
                continue
            spelling = f"{function.args.args[0].arg}.{name}"
            lines += [b.line for b in bindings(function, spelling) if not _none(b.value)]
            lines += _items_put(function, spelling) if running else []
        if lines and owner is not None:
            return line_at(owner[0], lines[-1])
    return None


def changed_in(kind: type, name: str) -> Json | None:
    """The last line of a class of the user's, outside of `__init__`, that sets an attribute or changes it in place."""
    for base in kind.__mro__:
        owner = user_class(base)
        lines: list[int] = []
        for function in owner[1].body if owner is not None else ():
            if isinstance(function, ast.FunctionDef) and function.args.args and function.name != "__init__":
                spelling = f"{function.args.args[0].arg}.{name}"
                lines += [binding.line for binding in bindings(function, spelling)]
                lines += [
                    node.lineno
                    for node in ast.walk(function)
                    if isinstance(node, ast.Attribute)
                    and node.attr.endswith("_")
                    and not node.attr.endswith("__")
                    and spelled(node.value) == spelling
                ]
        if lines and owner is not None:
            return line_at(owner[0], max(lines))
    return None


def set_anywhere(name: str, paths: list[str]) -> Json | None:
    """The only line of some files that sets an attribute of this name on anything, such as in a hook."""
    found = {
        (path, node.lineno)
        for path in paths
        for node in walk(path)
        if isinstance(node, ast.Assign)
        and not _none(node.value)
        and any(isinstance(t, ast.Attribute) and t.attr == name for t in node.targets)
    }
    return line_at(*found.pop()) if len(found) == 1 else None


def _none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _items_put(function: ast.FunctionDef, spelling: str) -> list[int]:
    """`self.kept[k] = x`, `self.kept.append(x)`."""
    found = []
    for node in statements(function):
        if isinstance(node, ast.Assign):
            into = [t.value for t in node.targets if isinstance(t, ast.Subscript)]
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            func = node.value.func
            into = [func.value] if isinstance(func, ast.Attribute) and func.attr in _PUTS else []
        else:
            continue
        found += [node.lineno for target in into if ast.unparse(target) == spelling]
    return found


def written_last(kind: type, attribute: str) -> Json | None:
    """The last line outside of `__getitem__` that assigns to `self.attribute` or a part of it."""
    owner = class_of(kind)
    if owner is None:
        return None
    found = 0
    for function in ast.walk(owner[1]):
        if isinstance(function, ast.FunctionDef) and function.name != "__getitem__":
            for node in ast.walk(function):
                if any(is_own(part, attribute) for target in targets(node) for part in ast.walk(target)):
                    found = max(found, getattr(node, "lineno", 0))
    return line_at(owner[0], found) if found else None


def returned_uncopied(kind: type, name: str) -> Json | None:
    """The only line of a class that returns `self.name` without a copy."""
    owner = class_of(kind)
    found = {
        node.lineno
        for node in (ast.walk(owner[1]) if owner is not None else ())
        if isinstance(node, ast.Return) and node.value is not None and any(_uncopied(node.value, name))
    }
    return line_at(owner[0], found.pop()) if owner is not None and len(found) == 1 else None


def _uncopied(node: ast.expr, name: str) -> Iterator[bool]:
    """True for each mention of `self.name` that no call around it copies."""
    if isinstance(node, ast.Attribute) and node.attr == name and isinstance(node.value, ast.Name):
        yield node.value.id == "self"
        return
    if isinstance(node, ast.Call):
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if called in _COPIES:
            return
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            yield from _uncopied(child, name)


def returned_part(path: str, first: int, part: int) -> int | None:
    """Where a part of the last result of the function that begins on a line gets its value."""
    for function in walk(path):
        if isinstance(function, ast.FunctionDef) and first in (
            function.lineno,
            *(decorator.lineno for decorator in function.decorator_list),
        ):
            return _part_line(function, part)
    return None


def _part_line(function: ast.FunctionDef, part: int) -> int | None:
    given = [node for node in ast.walk(function) if isinstance(node, ast.Return) and node.value is not None]
    if not given:
        return None
    value: ast.AST | None = max(given, key=lambda node: node.lineno).value
    if isinstance(value, ast.Tuple | ast.List) and part < len(value.elts):
        value = value.elts[part]
    elif isinstance(value, ast.Dict) and part < len(value.values):
        value = value.values[part]
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and not value.args:
        value = value.func.value  # x.float()
    if isinstance(value, ast.Name):
        bound = [
            node.lineno
            for node in ast.walk(function)
            if isinstance(node, ast.Assign | ast.AugAssign) and any(is_name(t, value.id) for t in targets(node))
        ]
        return max(bound, default=value.lineno)
    return getattr(value, "lineno", None)


def given_last(function: ast.FunctionDef, part: Any) -> ast.expr | None:
    """The last value that a function returns (or yields), or this part of it."""
    given = [node.value for node in statements(function) if isinstance(node, ast.Return) and node.value is not None]
    given += [
        node.value.value
        for node in statements(function)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Yield) and node.value.value is not None
    ]
    if not given:
        return None
    value = given[-1]
    chosen: ast.expr = value
    if isinstance(value, ast.Tuple) and isinstance(part, int) and part < len(value.elts):
        chosen = value.elts[part]
    elif isinstance(value, ast.Dict) and isinstance(part, str):
        keys = {
            key.value: item for key, item in zip(value.keys, value.values, strict=True) if isinstance(key, ast.Constant)
        }
        chosen = keys.get(part, value)
    return chosen


def given_line(function: ast.FunctionDef, part: Any, path: str, depth: int = 0) -> Json | None:
    """Where that value, or the name that holds it, is made. `depth`: of how many functions of the file, each of which gives it as one of several results."""
    chosen = given_last(function, part)
    if chosen is None:
        return None
    line = chosen.lineno
    if isinstance(chosen, ast.Name):
        bound = [b for b in bindings(function, chosen.id) if b.line <= line]
        line = bound[-1].line if bound else line
        if depth and bound and bound[-1].path and isinstance(made := bound[-1].value, ast.Call):
            inner = next((f for f in walk(path) if isinstance(f, ast.FunctionDef) and is_name(made.func, f.name)), None)
            if inner is not None:
                return given_line(inner, bound[-1].path[0], path, depth - 1) or line_at(path, line)
    return line_at(path, line)


def item_line(kind: type, part: Any, without: type) -> Json | None:
    """The line of a `__getitem__` (or `__iter__`) that makes this part of an item; not of the class `without`."""
    for name in ("__getitem__", "__iter__"):
        for base in kind.__mro__:
            if name in vars(base) and base is not without:
                found = user_method(base, name)
                if found is not None:
                    given = given_last(found[1], part)
                    held = _held_line(kind, given) if given is not None else None
                    return held or given_line(found[1], part, found[0])
                break
    return None


def _held_line(kind: type, node: ast.expr) -> Json | None:
    """Of `self.y[i]`, which is handed out as it is held: where `self.y` got its values."""
    match node:
        case ast.Subscript(value=ast.Attribute(value=ast.Name(id="self"), attr=name)):
            return attribute_line(kind, name)
    return None


def returned_line(called: Any, where: list[Any], depth: int = 0) -> Json | None:
    """The line of a function of the user's that makes this part of what it returns; `depth` as of `given_line`."""
    code = getattr(called, "__code__", None)
    if code is None or not is_user(code):
        return None
    scope = scope_at(code.co_filename, code.co_firstlineno + 1)
    if not isinstance(scope, ast.FunctionDef) or scope.name != code.co_name:
        return None
    return given_line(scope, where[0] if where else None, code.co_filename, depth)


def none_returned(kind: type) -> Json | None:
    """The only `return None` (or bare `return`) of a class's `__getitem__`; where there is none, its last statement."""
    found = user_method(kind, "__getitem__")
    if found is None:
        return None
    path, function = found
    empty = [
        node.lineno
        for node in statements(function)
        if isinstance(node, ast.Return) and (node.value is None or _none(node.value))
    ]
    if len(empty) > 1:
        return None
    return line_at(path, empty[0] if empty else function.body[-1].lineno)
