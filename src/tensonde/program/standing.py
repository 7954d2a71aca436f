"""Where an expression of the user's stands: in which function, what its names mean there, who called it with what."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from inspect import getattr_static, unwrap
from types import CodeType, SimpleNamespace
from typing import Any

from tensonde.program.syntax import parse, scope_at, walk
from tensonde.program.values import UNKNOWN, FrameState, evaluate, kinds_of


@dataclass(frozen=True, slots=True)
class Stand:
    """Where an expression stands: the file, the function around it, what its names mean there, and who called."""

    path: str
    scope: ast.AST
    names: Any
    """A frame, or what stands for one: `f_locals` and `f_globals`."""
    before: int
    """Bindings from this line on are not looked at."""
    caller: Stand | None = None
    call: ast.Call | None = None
    method: bool = False


def stand_at(place: FrameState, frames: Sequence[FrameState]) -> Stand | None:
    """Of one of the user's frames, given outermost first, with those that called it."""
    stand: Stand | None = None
    before = place
    for user in frames:
        scope = scope_at(user.path, user.line)
        if scope is None:
            return None
        names, code = user.frame, user.frame.f_code
        call = failing_call(before) if stand is not None else None
        if call is not None and stand is not None and not _calls(call, stand, code):
            call = None  # something between them did: a loader, a decorator
        method = bool(code.co_argcount) and code.co_varnames[0] in ("self", "cls")
        stand = Stand(user.path, scope, names, user.line, stand, call, method)
        if user is place:
            return stand
        before = user
    return None


def _calls(call: ast.Call, stand: Stand, code: CodeType) -> bool:
    """This very call runs that code."""
    made = evaluate(call.func, stand.names)
    function = getattr_static(made, "__init__", None) if isinstance(made, type) else called(call.func, stand)[0]
    return getattr(unwrap(function), "__code__", None) is code if function is not None else False


def failing_call(place: FrameState) -> ast.Call | None:
    node = place.expression
    return _at(node, place.line) if isinstance(node, ast.Call) else None


def _at(node: ast.Call, line: int) -> ast.Call:
    """Parsed alone it counts lines from 1; here they are the file's."""
    shift = line - node.lineno
    return ast.increment_lineno(node, shift) if shift > 0 else node


def called(func: ast.expr, stand: Stand) -> tuple[Any, Any]:
    """The function behind what is called, and the object it belongs to."""
    target = evaluate(func, stand.names)
    method = next((kind.calls for kind in kinds_of(target) if kind.calls), None)
    if method is not None:
        return getattr_static(type(target), method, None), target
    if target is UNKNOWN and isinstance(func, ast.Attribute):
        holder = evaluate(func.value, stand.names)
        return (None, None) if holder is UNKNOWN else (getattr_static(type(holder), func.attr, None), holder)
    if getattr(target, "__code__", None) is not None:
        return target, None
    if target is not UNKNOWN and not isinstance(target, type):
        return getattr_static(type(target), "__call__", None), target
    return None, None


def argument(scope: ast.FunctionDef, call: ast.Call | None, name: str, *, method: bool) -> ast.expr | None:
    """What a call gives for a parameter of the function; None where stars hide it or it is left out."""
    return None if call is None else argument_at(call, [a.arg for a in scope.args.args][1 if method else 0 :], name)


def argument_at(call: ast.Call, names: list[str], name: str) -> ast.expr | None:
    """The same, by the names of the parameters in their order."""
    if any(isinstance(a, ast.Starred) for a in call.args):
        return None
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    k = names.index(name) if name in names else len(call.args)
    return call.args[k] if k < len(call.args) else None


def with_only_call(stand: Stand, name: str) -> Stand:
    """With the only call of a class in the file, for the arguments of its `__init__`."""
    tree = parse(stand.path)
    calls = [
        n for n in walk(stand.path) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id == name
    ]
    if len(calls) != 1 or tree is None or getattr(stand.scope, "name", "") != "__init__":
        return stand
    around = scope_at(stand.path, calls[0].lineno) or tree
    names = SimpleNamespace(f_locals={}, f_globals=stand.names.f_globals)
    outer = Stand(stand.path, around, names, calls[0].lineno)
    return Stand(stand.path, stand.scope, stand.names, stand.before, outer, calls[0], method=True)
