"""Where a value comes from: the variable that holds it, and the expression that made it.

An expression is followed back through names, arguments, functions and forwards.

`Normal(mu, sigma)` fails: `sigma` is a part of the argument `params`, that was `model(past)`, whose forward returns
`mu, sigma`, of which the second is bound to `1.0 + self.scale(h)`. Nothing of the user's is run for it; where a step
cannot be made, the way ends at the line that it has come to.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import CodeType, FrameType, ModuleType, SimpleNamespace
from typing import Any

from tensonde.program.frames import is_user
from tensonde.program.lines import Json, line_at
from tensonde.program.queries import assignment
from tensonde.program.standing import Stand, argument, called, with_only_call
from tensonde.program.syntax import Binding, bindings, function_of, is_name, parse, scope_at, statements, walk
from tensonde.program.values import UNKNOWN, FrameState, evaluate

_DEPTH = 16
_SAME = (
    "to", "cuda", "cpu", "view", "reshape", "squeeze", "unsqueeze", "flatten", "contiguous", "permute", "transpose", "t",
    "detach", "clone", "float", "double", "expand", "expand_as", "broadcast_to", "repeat", "diag", "diag_embed",
)  # fmt: skip
"""Ops that leave the values as they are."""
Wanted = Callable[[ast.expr], bool | None]
"""None: nothing behind this expression counts."""


@dataclass(frozen=True, slots=True)
class Made:
    stand: Stand
    node: ast.expr
    line: int

    @property
    def source(self) -> Json:
        return line_at(self.stand.path, self.line)


def made(node: ast.expr, stand: Stand, line: int, wanted: Wanted | None = None) -> Made | None:
    """The expression behind one that stands on a line: what first is no mere name of another. With `wanted`, the
    nearest one on the way back that fulfils it, None if none does."""
    return _Way(wanted).follow(node, stand, line, (), _DEPTH)


def made_around(
    frame: FrameType | None, name_in: Callable[[FrameType], str | None], wanted: Wanted | None = None
) -> Json | None:
    """The line that made the value which a variable of the user's frames holds, from `frame` on: of the outermost such
    variable. `name_in` gives its name in a frame."""
    found = None
    while frame is not None:
        name = name_in(frame) if is_user(frame.f_code) else None
        if name is not None:
            path, number = frame.f_code.co_filename, frame.f_lineno
            scope = scope_at(path, number)
            if scope is not None:
                way = made(ast.Name(name, ast.Load()), Stand(path, scope, frame, number), number, wanted)
                found = way if way is not None and not isinstance(way.node, ast.Name) else found
        frame = frame.f_back
    return found.source if found is not None else None


class _Way:
    def __init__(self, wanted: Wanted | None) -> None:
        self.wanted = wanted
        self.seen: set[tuple[int, int, tuple[Any, ...]]] = set()

    def follow(self, node: ast.expr, stand: Stand, line: int, where: tuple[Any, ...], depth: int) -> Made | None:
        here = Made(stand, node, line)
        key = (id(node), id(stand.scope), where)
        if depth == 0 or key in self.seen:
            return None if self.wanted else here
        self.seen.add(key)
        if self.wanted is not None and (fits := self.wanted(node)) is not False:
            return here if fits else None
        found = self._step(node, stand, line, where, depth - 1)
        if found is not None:
            return found
        if self.wanted is None:
            return here
        for part in ast.iter_child_nodes(node):  # any part of it may have brought what is looked for
            if isinstance(part, ast.keyword):
                part = part.value
            if isinstance(part, ast.expr) and not isinstance(part, ast.Constant):
                found = self.follow(part, stand, line, (), depth - 1)
                if found is not None:
                    return found
        return None

    def _step(self, node: ast.expr, stand: Stand, line: int, where: tuple[Any, ...], depth: int) -> Made | None:
        match node:
            case ast.Tuple(elts=parts) if where and isinstance(where[0], int) and where[0] < len(parts):
                return self.follow(parts[where[0]], stand, line, where[1:], depth)
            case ast.Name(id=name):
                return self._name(name, stand, line, where, depth)
            case ast.Attribute(value=ast.Name(id=owner)):
                return self._attribute(owner, node, stand, line, where, depth)
            case ast.Subscript(value=value, slice=ast.Constant(value=key)):
                return self.follow(value, stand, line, (key, *where), depth)
            case ast.Call(func=ast.Attribute(value=value, attr=method), args=args) if method in _SAME:
                if isinstance(evaluate(value, stand.names), ModuleType):  # torch.squeeze(x)
                    return self.follow(args[0], stand, line, where, depth) if args else None
                return self.follow(value, stand, line, where, depth)
            case ast.Call():
                return self._called(node, stand, line, where, depth)
        return None

    def _name(self, name: str, stand: Stand, line: int, where: tuple[Any, ...], depth: int) -> Made | None:
        found = [b for b in bindings(stand.scope, name) if b.line < line and not b.loop]
        for binding in reversed(found if self.wanted else found[-1:]):
            if binding.augmented and self.wanted is None:
                return Made(stand, binding.value, binding.line)
            way = self.follow(binding.value, stand, binding.line, (*binding.path, *where), depth)
            if way is not None:
                return way
        if isinstance(stand.scope, ast.FunctionDef):
            given = argument(stand.scope, stand.call, name, method=stand.method)
            if given is not None and stand.caller is not None:
                return self.follow(given, stand.caller, stand.caller.before, where, depth)
            tree = parse(stand.path)
            if tree is not None and name not in {a.arg for a in ast.walk(stand.scope.args) if isinstance(a, ast.arg)}:
                whole = Stand(stand.path, tree, SimpleNamespace(f_locals={}, f_globals=stand.names.f_globals), 1 << 30)
                bound = [b for b in bindings(tree, name) if not b.loop]
                if bound:
                    return self.follow(bound[-1].value, whole, bound[-1].line, (*bound[-1].path, *where), depth)
        return None

    def _attribute(
        self, owner: str, node: ast.Attribute, stand: Stand, line: int, where: tuple[Any, ...], depth: int
    ) -> Made | None:
        here = [b for b in bindings(stand.scope, f"{owner}.{node.attr}") if b.line < line]
        if here:
            return self.follow(here[-1].value, stand, here[-1].line, (*here[-1].path, *where), depth)
        holder = evaluate(ast.Name(owner, ast.Load()), stand.names)
        if holder is UNKNOWN:
            return None
        for base in type(holder).__mro__:
            for function in vars(base).values():
                code = getattr(function, "__code__", None)
                if code is None or not is_user(code) or not code.co_argcount:
                    continue
                scope = function_of(code)
                bound = bindings(scope, f"{code.co_varnames[0]}.{node.attr}") if scope is not None else []
                if bound and scope is not None:
                    names = SimpleNamespace(f_locals={code.co_varnames[0]: holder}, f_globals=function.__globals__)
                    inside = with_only_call(Stand(code.co_filename, scope, names, 1 << 30), base.__name__)
                    return self.follow(bound[-1].value, inside, bound[-1].line, (*bound[-1].path, *where), depth)
        return None

    def _called(self, node: ast.Call, stand: Stand, line: int, where: tuple[Any, ...], depth: int) -> Made | None:
        """Into a function, a method, a forward or a `__call__` of the user's: what it returns. A helper that stands several times in one
        function makes different things of what it is given: the line that gives it is the one that tells."""
        if self.wanted is None and isinstance(node.func, ast.Name):
            calls = [n for n in ast.walk(stand.scope) if isinstance(n, ast.Call) and is_name(n.func, node.func.id)]
            if len(calls) >= 3 and len({ast.dump(call) for call in calls}) == len(calls):
                return None
        function, holder = called(node.func, stand)
        code: CodeType | None = getattr(function, "__code__", None)
        if code is None or not is_user(code):
            return None
        scope = function_of(code)
        if scope is None:
            return None
        held = {code.co_varnames[0]: holder} if holder is not None and code.co_argcount else {}
        names = SimpleNamespace(f_locals=held, f_globals=function.__globals__)
        outer = Stand(stand.path, stand.scope, stand.names, line, stand.caller, stand.call, stand.method)
        inside = Stand(code.co_filename, scope, names, 1 << 30, outer, node, holder is not None)
        given = [n for n in statements(scope) if isinstance(n, ast.Return) and n.value is not None]
        for last in reversed(given if self.wanted else given[-1:]):
            assert last.value is not None
            value = last.value
            if isinstance(value, ast.Tuple) and where and isinstance(where[0], int) and where[0] < len(value.elts):
                part: ast.expr = value.elts[where[0]]
                found = self.follow(part, inside, part.lineno, where[1:], depth)
            else:
                found = self.follow(value, inside, value.lineno, where, depth)
            if found is not None:
                return found
        return None


def holding(frame: FrameType | None, thing: object) -> Json | None:
    """The outermost variable, from `frame` on, that is this very thing and was assigned (an argument was not): name and
    line."""
    found = None
    while frame is not None:
        if is_user(frame.f_code):
            path = frame.f_code.co_filename
            for name in [name for name, value in frame.f_locals.items() if value is thing]:
                number = assignment(path, name, before=frame.f_lineno)
                if number:
                    found = {"name": name, "line": line_at(path, number)}
        frame = frame.f_back
    return found


def outermost(frames: Iterable[FrameType], fits: Callable[[Any], bool]) -> Json | None:
    """The first variable of some frames (of the user's, outermost first) whose value fits: name and line. A function that
    was given an object has it under a name of its own, so that the outermost name says most."""
    for frame in frames:
        path = frame.f_code.co_filename
        scope = scope_at(path, frame.f_lineno)
        for name, held in list(frame.f_locals.items()) if scope is not None else ():
            if fits(held):
                bound = [b for b in bindings(scope, name) if not b.loop and not b.augmented]  # type: ignore[arg-type]
                if bound:
                    return {"name": name, "line": line_at(path, bound[-1].line)}
    return None


def variable_line(held: Any, frame: FrameType, line: int) -> Json | None:
    """Where the variable of a frame, or of its file, that holds this very object was last given a value."""
    path = frame.f_code.co_filename
    for scope, names in ((scope_at(path, line), frame.f_locals), (parse(path), frame.f_globals)):
        for name, value in names.items():
            if value is held and scope is not None:
                found = [binding for binding in bindings(scope, name) if not binding.augmented]
                if found:
                    return line_at(path, found[-1].line)
    return None


def argument_line(path: str, called: str, part: int) -> Json | None:
    """The line that makes an argument of the only call of a function (or class) in a file."""
    calls = [
        node
        for node in walk(path)
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(called) and part < len(node.args)
    ]
    if len(calls) != 1:
        return None
    given = calls[0].args[part]
    scope = scope_at(path, calls[0].lineno)
    if isinstance(given, ast.Name) and scope is not None:
        bound = [b for b in bindings(scope, given.id) if not b.loop and not b.augmented and b.line < calls[0].lineno]
        if bound:
            return line_at(path, bound[-1].line)
    return line_at(path, given.lineno)


def binding_before(name: str, frame: FrameType, at: int, before: int) -> Binding | None:
    """The latest binding of a name, seen from line `at` of a frame, that comes before a line (in a loop, its head too)."""
    path = frame.f_code.co_filename
    scope = scope_at(path, at)
    if scope is None or (name not in frame.f_locals and name not in frame.f_globals):
        return None
    found = bindings(scope, name)
    if not found and not isinstance(scope, ast.Module) and name not in frame.f_locals:
        tree = parse(path)
        found = bindings(tree, name) if tree is not None else []
        before = 1 << 30
    earlier = [b for b in found if (b.line < before or (b.line == before and b.loop)) and not b.augmented]
    return earlier[-1] if earlier else None


def given_line(held: object, place: FrameState) -> Json | None:
    """The line before the one that failed which last gave this very object to a variable of the frame."""
    for name, value in place.frame.f_locals.items():
        if value is held:
            found = binding_before(name, place.frame, place.line, place.line)
            return line_at(place.path, found.line) if found is not None else None
    return None
