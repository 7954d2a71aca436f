"""Which variable or attribute of the program holds a certain object, and the line that put it there."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from torch import nn

from tensonde.adapters.torch.explain import program
from tensonde.adapters.torch.explain.definition import frames, roots, source_file
from tensonde.adapters.torch.explain.traceback import Failure, as_json

_MOST_ITEMS = 1000


def held_by(thing: Any, failure: Failure) -> dict[str, Any] | None:
    """`name` and `line`: of a variable of a user's frame first, then of an attribute, then of a list or dictionary
    that has it among its items."""
    found = _variable(failure, lambda held: held is thing)
    if found is None:
        for owner, name, inner in _attributes(failure):
            if inner is thing:
                found = {"name": f"{type(owner).__name__}.{name}", "line": attribute_set(owner, name)}
                break
    return found or _variable(failure, lambda held: _among(thing, held))


def _variable(failure: Failure, fits: Any) -> dict[str, Any] | None:
    """The outermost one: a function that was given the object has it under a name of its own."""
    for frame in reversed(frames(failure)):
        scope = program.scope_at(frame.f_code.co_filename, frame.f_lineno)
        for name, held in list(frame.f_locals.items()) if scope is not None else ():
            if fits(held):
                bound = [b for b in program.bindings(scope, name) if not b.loop and not b.augmented]  # type: ignore[arg-type]
                if bound:
                    line = program.source_line(frame.f_code.co_filename, bound[-1].line)
                    return {"name": name, "line": as_json(line)}
    return None


def _attributes(failure: Failure) -> Iterator[tuple[Any, str, Any]]:
    """Of the modules, and of other objects that stand in the user's frames."""
    modules = [module for root in roots(failure) for module in root.modules()]
    others = [
        held
        for frame in frames(failure)
        for held in frame.f_locals.values()
        if not isinstance(held, nn.Module) and source_file(type(held)) is not None
    ]
    for owner in [*modules, *others]:
        table = dict(getattr(owner, "__dict__", {}))
        if isinstance(owner, nn.Module):
            table |= owner._parameters | owner._buffers
        for name, held in table.items():
            yield owner, name, held


def _among(thing: Any, held: Any) -> bool:
    items = list(held.values()) if type(held) is dict else held if type(held) in (list, tuple) else ()
    return any(item is thing for item in items[:_MOST_ITEMS])


def attribute_set(owner: Any, name: str, *, running: bool = False) -> dict[str, Any] | None:
    """The line that sets an attribute to something else than None: the last of its class's; with `running`, one that
    stands outside of `__init__`, and also one that puts an item into it."""
    for base in type(owner).__mro__:
        path = source_file(base)
        kind = program.class_named(path, base.__name__) if path else None
        if kind is None or path is None:
            continue
        lines = []
        for function in kind.body:
            if not isinstance(function, ast.FunctionDef) or not function.args.args:
                continue
            if running and function.name == "__init__":
                continue
            spelled = f"{function.args.args[0].arg}.{name}"
            lines += [b.line for b in program.bindings(function, spelled) if not _none(b.value)]
            lines += _items_put(function, spelled) if running else []
        if lines:
            return as_json(program.source_line(path, lines[-1]))
    return None


def set_outside(name: str, failure: Failure) -> dict[str, Any] | None:
    """The only line of the user's running files that sets an attribute of this name on anything, such as in a hook."""
    found = {
        (path, node.lineno)
        for path in dict.fromkeys(place.path for place in failure.user)
        for node in ast.walk(program.parse(path) or ast.Pass())
        if isinstance(node, ast.Assign)
        and not _none(node.value)
        and any(isinstance(t, ast.Attribute) and t.attr == name for t in node.targets)
    }
    return as_json(program.source_line(*found.pop())) if len(found) == 1 else None


def _none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _items_put(function: ast.FunctionDef, spelled: str) -> list[int]:
    """`self.kept[k] = x`, `self.kept.append(x)`."""
    found = []
    for node in program.statements(function):
        if isinstance(node, ast.Assign):
            targets = [t.value for t in node.targets if isinstance(t, ast.Subscript)]
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            func = node.value.func
            put = isinstance(func, ast.Attribute) and func.attr in ("append", "appendleft", "extend", "add", "update")
            targets = [func.value] if put and isinstance(func, ast.Attribute) else []
        else:
            continue
        found += [node.lineno for target in targets if ast.unparse(target) == spelled]
    return found
