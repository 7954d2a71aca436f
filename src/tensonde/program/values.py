"""The value that an expression of the program stands for in a frame, found without running any of the user's code.

Names, attributes, constant arithmetic, indexing of containers: enough to say which tensors an op was given. Anything else
is `UNKNOWN`. An adapter registers the classes of its framework that may be looked into.
"""

from __future__ import annotations

import ast
import linecache
from dataclasses import dataclass
from itertools import islice
from types import CodeType, FrameType, ModuleType
from typing import Any

from tensonde.model.site import SourceLine
from tensonde.program.frames import is_user
from tensonde.program.lines import source_line


class _Unknown:
    def __repr__(self) -> str:
        return "?"


UNKNOWN: Any = _Unknown()
_PLAIN = (int, float, bool, str, bytes, type(None))
_BINARY = {
    ast.Add: "__add__",
    ast.Sub: "__sub__",
    ast.Mult: "__mul__",
    ast.FloorDiv: "__floordiv__",
    ast.Mod: "__mod__",
}


@dataclass(frozen=True, slots=True)
class Kind:
    """A class whose objects may be looked into without running code of the user's."""

    type: type
    attributes: tuple[str, ...] | None = None
    """All that may be read by `getattr`; None: what the object holds in `__dict__`."""
    tables: tuple[str, ...] = ()
    """Attributes that are dictionaries of further attributes."""
    methods: tuple[str, ...] = ()
    """Methods that may be called."""
    indexed: bool = False
    sized: bool = False
    calls: str | None = None
    """The method that calling the object runs, where it is not `__call__`."""


_kinds: dict[type, Kind] = {kind: Kind(kind, indexed=True, sized=True) for kind in (list, tuple, dict)}


def register(*kinds: Kind) -> None:
    _kinds.update({kind.type: kind for kind in kinds})


def kinds_of(value: Any) -> list[Kind]:
    return [kind for kind in _kinds.values() if isinstance(value, kind.type)]


@dataclass(frozen=True, slots=True)
class FrameState:
    """One entry of a traceback: a frame, and where in it the program was."""

    frame: FrameType
    line: int
    lasti: int

    @property
    def path(self) -> str:
        return self.frame.f_code.co_filename

    @property
    def function(self) -> str:
        return self.frame.f_code.co_name

    @property
    def is_user(self) -> bool:
        return is_user(self.frame.f_code)

    @property
    def source(self) -> SourceLine:
        return source_line(self.path, self.line)

    @property
    def expression(self) -> ast.AST | None:
        return failing(self.frame.f_code, self.lasti)


def failing(code: CodeType, lasti: int) -> ast.AST | None:
    """The expression or statement that an instruction belongs to, parsed from its exact place in the source."""
    positions = next(islice(code.co_positions(), lasti // 2, None), None)
    if positions is None or None in positions:
        return None
    first, last, begin, end = positions
    assert first is not None
    assert last is not None
    lines = [linecache.getline(code.co_filename, k).encode() for k in range(first, last + 1)]
    if not lines or not lines[-1]:
        return None
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][begin:]
    text = b"".join(lines).decode(errors="replace")
    try:
        return ast.parse(f"({text}\n)", mode="eval").body
    except SyntaxError:
        pass
    try:
        statements = ast.parse(text).body
    except SyntaxError:
        return None
    return statements[0] if statements else None


def evaluate(node: ast.AST, frame: FrameType) -> Any:
    try:
        return _evaluate(node, frame)
    except Exception:
        return UNKNOWN


def _evaluate(node: ast.AST, frame: FrameType) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            for scope in (frame.f_locals, frame.f_globals):
                if name in scope:
                    return scope[name]
        case ast.Attribute(value=owner, attr=name):
            return _attribute(_evaluate(owner, frame), name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            value = _evaluate(operand, frame)
            return -value if isinstance(value, int | float) else UNKNOWN
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            a, b = _evaluate(left, frame), _evaluate(right, frame)
            if isinstance(a, int | float) and isinstance(b, int | float):
                return getattr(a, _BINARY[type(op)])(b)
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            values = [_evaluate(part, frame) for part in parts]
            return UNKNOWN if any(value is UNKNOWN for value in values) else tuple(values)
        case ast.Slice(lower=low, upper=high, step=step):
            parts_of = [None if part is None else _evaluate(part, frame) for part in (low, high, step)]
            return UNKNOWN if any(part is UNKNOWN for part in parts_of) else slice(*parts_of)
        case ast.Subscript(value=owner, slice=index):
            held, key = _evaluate(owner, frame), _evaluate(index, frame)
            if key is not UNKNOWN and any(kind.indexed for kind in kinds_of(held)):
                return held[key]
        case ast.Call(func=ast.Name(id="len"), args=[arg], keywords=[]):
            held = _evaluate(arg, frame)
            if any(kind.sized for kind in kinds_of(held)):
                return len(held)
        case ast.Call(func=ast.Attribute(value=owner, attr=name), args=args, keywords=[]):
            held = _evaluate(owner, frame)
            if any(name in kind.methods for kind in kinds_of(held)):
                given = [_evaluate(arg, frame) for arg in args]
                return UNKNOWN if UNKNOWN in given else getattr(held, name)(*given)
    return UNKNOWN


def _attribute(owner: Any, name: str) -> Any:
    """Only where looking cannot run code of the user's: what an object holds, what registered kinds and modules have."""
    if owner is UNKNOWN:
        return UNKNOWN
    kinds = kinds_of(owner)
    for kind in kinds:
        if kind.attributes is not None:
            return getattr(owner, name) if name in kind.attributes else UNKNOWN
    held = getattr(owner, "__dict__", {})
    if name in held:
        return held[name]
    for table in (getattr(owner, table) for kind in kinds for table in kind.tables):
        if name in table:
            return table[name]
    if isinstance(owner, ModuleType):
        return getattr(owner, name, UNKNOWN)
    return UNKNOWN


def plain(value: Any) -> bool:
    """Can stand in JSON as it is."""
    return isinstance(value, _PLAIN) or (isinstance(value, tuple | list) and all(plain(item) for item in value))


def operands(node: ast.AST, frame: FrameType) -> dict[str, Any]:
    """What the failing call, operator or assignment was given, by the text that stands in the source (or the
    keyword)."""
    found: dict[str, Any] = {}

    def add(part: ast.AST, name: str | None = None) -> None:
        if isinstance(part, ast.Starred):
            part = part.value
        value = evaluate(part, frame)
        if value is not UNKNOWN:
            found[name or ast.unparse(part)[:60]] = value

    match node:
        case ast.Call(func=func, args=args, keywords=keywords):
            if isinstance(func, ast.Attribute) and not isinstance(evaluate(func.value, frame), ModuleType):
                add(func.value)
            for arg in args:
                add(arg)
            for keyword in keywords:
                add(keyword.value, keyword.arg)
        case ast.BinOp(left=left, right=right):
            add(left)
            add(right)
        case ast.AugAssign(target=target, value=value) | ast.Assign(targets=[target], value=value):
            add(target)
            add(value)
        case ast.Compare(left=left, comparators=others):
            add(left)
            for other in others:
                add(other)
        case ast.Subscript(value=owner, slice=index):
            add(owner)
            add(index)
    return found


_OPERATORS = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.MatMult: "matmul", ast.Pow: "pow",
    ast.Mod: "remainder", ast.FloorDiv: "floor_divide", ast.BitAnd: "and", ast.BitOr: "or",
}  # fmt: skip


def op_of(node: ast.AST) -> str | None:
    """The name of the op: `view` for `x.view(...)`, `matmul` for `a @ b`, `mul_` for `a *= b`."""
    match node:
        case ast.Call(func=ast.Attribute(attr=name)) | ast.Call(func=ast.Name(id=name)):
            return name
        case ast.BinOp(op=op):
            return _OPERATORS.get(type(op))
        case ast.AugAssign(op=op):
            operator = _OPERATORS.get(type(op))
            return f"{operator}_" if operator else None
        case ast.Compare():
            return "compare"
        case ast.Subscript():
            return "getitem"
        case ast.Assign(targets=[ast.Subscript()]):
            return "setitem"
    return None
