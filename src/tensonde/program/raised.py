"""What a plain Python error of the program is about: the key that is not there and those that are, the call and its
signature, the variable that is None and the line that made it so. Nothing of the user's is run for it."""

from __future__ import annotations

import ast
import builtins
import os
import re
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from inspect import getattr_static, signature, unwrap
from pathlib import Path
from typing import Any

from tensonde.program import syntax
from tensonde.program.frames import is_user
from tensonde.program.lines import Json, line_at
from tensonde.program.origin import made
from tensonde.program.standing import called, stand_at
from tensonde.program.values import UNKNOWN, FrameState, evaluate, kinds_of

_MOST = 12


def about(problem: BaseException, places: Sequence[FrameState]) -> dict[str, Any] | None:
    """`kind` says what sort of error it is, the other entries what is known of it. `places` are those of the user's frames,
    outermost first; the last is where the error surfaced."""
    for kinds, look in _LOOKS:
        if places and isinstance(problem, kinds):
            found = look(problem, places)
            if found is not None:
                return found
    return None


def _key(problem: BaseException, places: Sequence[FrameState]) -> dict[str, Any] | None:
    place = places[-1]
    node = place.expression
    if not isinstance(node, ast.Subscript) or not problem.args:
        return None
    key, holder = problem.args[0], evaluate(node.value, place.frame)
    fact: dict[str, Any] = {"kind": "key", "key": repr(key)[:80], "holder": ast.unparse(node.value)[:60]}
    if holder is os.environ:
        return fact | {"environment": True}
    if isinstance(holder, dict):
        names = [name for name in holder if isinstance(name, str)]
        fact |= {"has": [repr(name)[:40] for name in list(holder)[:_MOST]], "size": len(holder)}
        fact |= {"near": _near(key, names), "made": _made(node.value, places)}
    return fact


def _attribute(problem: BaseException, places: Sequence[FrameState]) -> dict[str, Any] | None:
    name, holder = getattr(problem, "name", None), getattr(problem, "obj", UNKNOWN)
    node = places[-1].expression
    if isinstance(node, ast.Call):
        node = node.func
    if name is None or not isinstance(node, ast.Attribute) or node.attr != name:
        return None
    if holder is None:
        return _of_none(node.value, places)
    if isinstance(holder, type) or type(holder).__name__ == "module":
        return {
            "kind": "attribute",
            "name": name,
            "of": getattr(holder, "__name__", "?"),
            "near": _near(name, dir(holder)),
        }
    return {
        "kind": "attribute",
        "name": name,
        "holder": ast.unparse(node.value)[:60],
        "of": type(holder).__name__,
        "near": _near(name, _names(holder)),
        "made": _made(node.value, places),
    }


def _none(problem: BaseException, places: Sequence[FrameState]) -> dict[str, Any] | None:
    if "NoneType" not in str(problem):
        return None
    node = places[-1].expression
    for part in ast.walk(node) if node is not None else ():
        if isinstance(part, ast.Name | ast.Attribute | ast.Subscript) and evaluate(part, places[-1].frame) is None:
            return _of_none(part, places)
    return None


def _of_none(node: ast.expr, places: Sequence[FrameState]) -> dict[str, Any]:
    """Of what is None: the function of the user's that returns nothing, or the line that gave it the value."""
    fact: dict[str, Any] = {"kind": "none", "name": ast.unparse(node)[:60]}
    stand = stand_at(places[-1], places)
    way = made(node, stand, places[-1].line) if stand is not None else None
    if way is None:
        return fact
    if isinstance(way.node, ast.Call):
        function, _ = called(way.node.func, way.stand)
        code = getattr(function, "__code__", None)
        scope = syntax.function_of(code) if code is not None and is_user(code) else None
        if (
            code is not None
            and scope is not None
            and not any(isinstance(s, ast.Return) and s.value for s in syntax.statements(scope))
        ):
            fact |= {"function": scope.name, "end": line_at(code.co_filename, scope.body[-1].lineno)}
    return fact | {"made": way.source, "value": ast.unparse(way.node)[:60]}


def _unbound(problem: BaseException, places: Sequence[FrameState]) -> dict[str, Any] | None:
    """A variable that only a loop gives a value, and the loop had nothing to go through."""
    place, name = places[-1], getattr(problem, "name", None)
    if name is None:
        told = re.search(r"local variable '(\w+)'", str(problem))
        name = told[1] if told else None
    scope = syntax.scope_at(place.path, place.line)
    if name is None or scope is None:
        return None
    fact: dict[str, Any] = {"kind": "unbound", "name": name, "near": _near(name, _known(place))}
    bound = syntax.bindings(scope, name)
    if bound:
        fact["bound"] = line_at(place.path, bound[-1].line)
        loop = syntax.loop_around(scope, bound[-1].line)
        if isinstance(loop, ast.For) and not (loop.lineno <= place.line <= (loop.end_lineno or 0)):
            fact |= {"loop": line_at(place.path, loop.lineno), "over": ast.unparse(loop.iter)[:60]}
            held = evaluate(loop.iter, place.frame)
            length = _length(held)
            fact |= {} if length is None else {"length": length}
            fact |= {"drop_last": True} if getattr(held, "drop_last", None) is True else {}
    return fact


def _call(problem: BaseException, places: Sequence[FrameState]) -> dict[str, Any] | None:
    """A call that does not fit the signature of what it calls."""
    text = str(problem)
    if not re.search(
        r"required positional|positional argument|unexpected keyword|required keyword|multiple values", text
    ):
        return None
    stand, node = stand_at(places[-1], places), places[-1].expression
    if stand is None or not isinstance(node, ast.Call):
        return None
    target = evaluate(node.func, places[-1].frame)
    function = getattr_static(target, "__init__", None) if isinstance(target, type) else called(node.func, stand)[0]
    code = getattr(unwrap(function), "__code__", None) if function is not None else None
    named = re.match(r"([\w.<>]+)\(\)", text)
    if code is None or (named and named[1].rpartition(".")[2] != code.co_name):
        return None
    fact: dict[str, Any] = {"kind": "call", "called": ast.unparse(node.func)[:60], "takes": _takes(function)}
    wrong = re.search(r"keyword argument '(\w+)'", text)
    if wrong:
        fact["near"] = _near(wrong[1], list(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]))
    if is_user(code):
        fact["defined"] = line_at(code.co_filename, code.co_firstlineno)
    return fact


def _unpacking(problem: BaseException, places: Sequence[FrameState]) -> dict[str, Any] | None:
    told = re.match(r"(too many|not enough) values to unpack \(expected (\d+)", str(problem))
    if not told:
        return None
    place = places[-1]
    statement = _statement(place)
    value: ast.expr | None = None
    if isinstance(statement, ast.Assign):
        value = statement.value
    elif isinstance(statement, ast.For):
        value = statement.iter
    fact: dict[str, Any] = {"kind": "unpack", "wanted": int(told[2]), "many": told[1] == "too many"}
    if value is None:
        return fact
    held = evaluate(value, place.frame)
    fact |= {"value": ast.unparse(value)[:60], "loop": isinstance(statement, ast.For)}
    if held is not UNKNOWN:
        fact |= {"type": type(held).__name__, "length": _length(held)}
        if isinstance(held, list | tuple) and held and isinstance(held[0], list | tuple):
            fact["parts"] = len(held[0])
    return fact


def _file(problem: BaseException, places: Sequence[FrameState]) -> dict[str, Any] | None:
    given = getattr(problem, "filename", None)
    if not isinstance(given, str) or not given:
        return None
    path = Path(given)
    folder = next((parent for parent in path.absolute().parents if parent.is_dir()), Path("/"))
    names = sorted(entry.name for entry in folder.iterdir())[:1000] if os.access(folder, os.R_OK) else []
    missing = path.absolute().relative_to(folder).parts[0]
    return {
        "kind": "file",
        "path": given[:200],
        "relative": not path.is_absolute(),
        "folder": str(folder),
        "missing": missing,
        "near": _near(missing, names),
        "working": os.getcwd(),
    }


def _position(problem: BaseException, places: Sequence[FrameState]) -> dict[str, Any] | None:
    place = places[-1]
    node = place.expression
    if not isinstance(node, ast.Subscript):
        return None
    holder, key = evaluate(node.value, place.frame), evaluate(node.slice, place.frame)
    length = _length(holder)
    if length is None:
        return None
    fact: dict[str, Any] = {"kind": "position", "holder": ast.unparse(node.value)[:60], "length": length}
    shape = getattr(holder, "shape", None)
    fact |= {"shape": [int(size) for size in shape]} if shape is not None else {}
    return fact | ({"index": key} if isinstance(key, int) else {}) | {"made": _made(node.value, places)}


def _own(problem: BaseException, places: Sequence[FrameState]) -> dict[str, Any] | None:
    """A check that stands in the program itself: its condition, and what the names in it hold."""
    place = places[-1]
    statement = _statement(place)
    test: ast.expr | None = None
    if isinstance(statement, ast.Assert):
        test = statement.test
    elif isinstance(statement, ast.Raise):
        scope = syntax.scope_at(place.path, place.line)
        around = [
            s
            for s in (syntax.statements(scope) if scope is not None else ())
            if isinstance(s, ast.If) and any(inner.lineno <= place.line <= (inner.end_lineno or 0) for inner in s.body)
        ]
        test = around[-1].test if around else None
    if test is None:
        return None
    held = {
        ast.unparse(part)[:60]: _shown(value)
        for part in ast.walk(test)
        if isinstance(part, ast.Name | ast.Attribute | ast.Subscript)
        and (value := evaluate(part, place.frame)) is not UNKNOWN
        and not callable(value)
        and type(value).__name__ != "module"
    }
    fact = {"kind": "own", "condition": ast.unparse(test)[:120], "asserted": isinstance(statement, ast.Assert)}
    return fact | {"values": dict(list(held.items())[:_MOST])}


_Look = Callable[[BaseException, Sequence[FrameState]], dict[str, Any] | None]
_LOOKS: list[tuple[type[BaseException] | tuple[type[BaseException], ...], _Look]] = [
    (Exception, _own),
    (KeyError, _key),
    (AttributeError, _attribute),
    ((TypeError, AttributeError), _none),
    (NameError, _unbound),
    (TypeError, _call),
    (ValueError, _unpacking),
    (FileNotFoundError, _file),
    (IndexError, _position),
]


def _made(node: ast.expr, places: Sequence[FrameState]) -> Json | None:
    """The line that made what an expression of the failing line stands for; None for that line itself."""
    stand = stand_at(places[-1], places)
    way = made(node, stand, places[-1].line) if stand is not None else None
    return way.source if way is not None and way.node is not node else None


def _near(name: object, names: Iterable[str]) -> list[str]:
    """Names that are spelt alike, those that contain it or are contained first: `hidden` for `hidden_size`."""
    if not isinstance(name, str):
        return []
    known = [other for other in names if other != name and not other.startswith("__")]
    plain = name.lower().strip("_")
    within = [o for o in known if len(o) > 2 and (o.lower() in plain or (len(plain) > 2 and plain in o.lower()))]
    return list(dict.fromkeys([*get_close_matches(name, known, 2, 0.7), *sorted(within, key=len)]))[:3]


def _names(holder: object) -> list[str]:
    """What an object has, read without running its code."""
    found = dict.fromkeys(name for base in type(holder).__mro__ for name in vars(base))
    found |= dict.fromkeys(name for name in getattr(holder, "__dict__", {}) if isinstance(name, str))
    for kind in kinds_of(holder):
        found |= dict.fromkeys(name for table in kind.tables for name in getattr(holder, table, {}))
    return [name for name in found if not name.startswith("_")]


def _known(place: FrameState) -> list[str]:
    return [*place.frame.f_locals, *place.frame.f_globals, *vars(builtins)]


def _takes(function: Any) -> str:
    try:
        shown = [
            str(parameter.replace(annotation=parameter.empty)) for parameter in signature(function).parameters.values()
        ]
    except (TypeError, ValueError):
        return ""
    return f"({', '.join(name for name in shown if name not in ('self', 'cls'))})"[:200]


def _statement(place: FrameState) -> ast.stmt | None:
    """The smallest statement around the failing line; of a loop, only its head."""
    scope = syntax.scope_at(place.path, place.line)
    around = [s for s in (syntax.statements(scope) if scope is not None else ()) if syntax.covers(s, place.line)]
    return min(around, key=lambda s: (s.end_lineno or s.lineno) - s.lineno, default=None)


def _length(held: Any) -> int | None:
    """Of what may be asked without running the user's code."""
    if isinstance(held, str) or any(kind.sized for kind in kinds_of(held)):
        try:
            return len(held)
        except Exception:
            return None
    return None


def _shown(value: Any) -> str:
    shape = getattr(value, "shape", None)
    if shape is not None:
        try:
            return f"{type(value).__name__} {[int(size) for size in shape]}"
        except TypeError:
            return type(value).__name__
    plain = value is None or isinstance(value, int | float | bool | str)
    return repr(value)[:60] if plain else f"{type(value).__name__}"
