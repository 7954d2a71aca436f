"""Where the user's program divides: by a large constant, as images are divided by 255, and in an optimizer's step by numbers
that may be 0, so that an update becomes infinite although the gradient is not."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from types import CodeType

from tensonde.program.syntax import bindings, called, covers, is_name, loop_around, parse, reads, scope_at, walk

LARGE = 100.0
_METHODS = ("div", "div_", "divide", "true_divide")
_DIVIDING = {"div": 0, "div_": 0, "true_divide": 0, "true_divide_": 0, "addcdiv": 1, "addcdiv_": 1}
"""Methods, and which argument is the divisor."""
_ROOTS = ("sqrt", "sqrt_", "norm", "rsqrt")


@functools.lru_cache(maxsize=32)
def large_divisions(path: str) -> list[tuple[int, float, str]]:
    """Line, number, and the function that the line is in."""
    parsed = parse(path)
    found = []
    for owner, node in _nodes(parsed, "") if parsed is not None else ():
        by = _divisor(node)
        if by is not None and by >= LARGE:
            found.append((int(getattr(node, "lineno", 0)), by, owner))
    return found


def _nodes(node: ast.AST, owner: str) -> Iterator[tuple[str, ast.AST]]:
    for inner in ast.iter_child_nodes(node):
        yield owner, inner
        named = isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef)
        yield from _nodes(inner, inner.name if named else owner)  # type: ignore[attr-defined]


def _divisor(node: ast.AST) -> float | None:
    given: ast.expr | None = None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        given = node.right
    elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Div):
        given = node.value
    elif (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _METHODS and node.args
    ):
        given = node.args[-1]
    number = given.value if isinstance(given, ast.Constant) else None
    return float(number) if isinstance(number, int | float) and not isinstance(number, bool) else None


def step_divisions(step: CodeType) -> list[tuple[str, int]]:
    """Kind and line of the divisions in all methods of the class around an optimizer's step, in the order of the lines.

    The kind is `power` for a divisor `1 - b ** t`, which is 0 in a step that counts as 0, `root` for a square root or norm
    to which nothing is added, `guarded` for a sum, as with eps, else `other`."""
    owner = next(
        (
            node
            for node in walk(step.co_filename)
            if isinstance(node, ast.ClassDef) and covers(node, step.co_firstlineno)
        ),
        None,
    )
    methods = [node for node in owner.body if isinstance(node, ast.FunctionDef)] if owner is not None else []
    found = [
        (_kind(divisor, method), node.lineno)
        for method in methods
        if method.name != "__init__"
        for node, divisor in _divided(method)
    ]
    return sorted(found, key=lambda entry: entry[1])


def _divided(method: ast.FunctionDef) -> Iterator[tuple[ast.expr, ast.expr]]:
    for node in ast.walk(method):
        match node:
            case ast.BinOp(op=ast.Div(), right=divisor) if not isinstance(divisor, ast.Constant):
                yield node, divisor
            case ast.Call(func=ast.Attribute(attr=name), args=args) if name in _DIVIDING:
                if len(args) > _DIVIDING[name] and not isinstance(args[_DIVIDING[name]], ast.Constant):
                    yield node, args[_DIVIDING[name]]


def _kind(divisor: ast.expr, method: ast.FunctionDef) -> str:
    if isinstance(divisor, ast.Name):  # of a name, what it was last given
        given = [
            n.value
            for n in ast.walk(method)
            if isinstance(n, ast.Assign)
            and n.lineno < divisor.lineno
            and any(is_name(t, divisor.id) for t in n.targets)
        ]
        divisor = given[-1] if given else divisor
    match divisor:
        case ast.BinOp(left=ast.Constant(value=1 | 1.0), op=ast.Sub(), right=ast.BinOp(op=ast.Pow())):
            return "power"
        case ast.Call(func=ast.Attribute(attr=name)) if name in _ROOTS:
            return "root"
        case ast.BinOp(op=ast.Pow(), right=ast.Constant(value=0.5)):
            return "root"
        case ast.BinOp(op=ast.Add()):
            return "guarded"
    return "other"


def divides_around(path: str, line: int) -> bool:
    """Whether the function that calls a collective at this line divides, anywhere, or one of the file that it calls: an average is made by hand there."""
    scope = scope_at(path, line)
    if scope is None:
        return False
    helpers = {called(node) for node in ast.walk(scope) if isinstance(node, ast.Call)}
    own = [node for node in walk(path) if isinstance(node, ast.FunctionDef) and node.name in helpers]
    return any(
        (isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.Div))
        or (isinstance(node, ast.Call) and called(node) in (*_METHODS, "mul_", "mul"))
        for function in (scope, *own)
        for node in ast.walk(function)
    )


def divides_given(path: str, line: int) -> bool:
    """Whether the function that gives a tensor to a collective at this line divides that tensor, by whatever means; also where this cannot be read."""
    scope = scope_at(path, line)
    calls = [node for node in ast.walk(scope) if isinstance(node, ast.Call) and node.args] if scope is not None else []
    given = next((ast.unparse(call.args[0]) for call in calls if call.lineno == line), None)
    if scope is None or given is None:
        return True
    for node in ast.walk(scope):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div | ast.Mult):
            parts: list[ast.AST] = [node.left]
        elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Div | ast.Mult):
            parts = [node.target]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and called(node) in _SCALING:
            parts = [node.func.value]
        else:
            continue
        if any(
            ast.unparse(inner) == given for part in parts for inner in ast.walk(part) if isinstance(inner, ast.expr)
        ):
            return True
    return False


_SCALING = (*_METHODS, "mul", "mul_", "multiply", "lerp_", "copy_")
_COLLECTIVES = ("all_reduce", "reduce", "all_gather", "all_gather_object", "gather")


def by_own_count(path: str, line: int) -> int:
    """The line that divides a name, which the statement at `line` gives to a collective and which a loop before it has added up, by another that a loop
    has added up and that no collective is given; 0 where none does."""
    scope = scope_at(path, line)
    calls = [node for node in ast.walk(scope) if isinstance(node, ast.Call) and node.args] if scope is not None else []
    given = next((call.args[0] for call in calls if call.lineno == line and isinstance(call.args[0], ast.Name)), None)
    if scope is None or not isinstance(given, ast.Name) or not _counted(scope, given.id, line):
        return 0
    if any(number >= line and scope_at(path, number) is scope for number in divisions_by_ranks(path)):
        return 0  # the number of ranks is taken into account
    shared = {
        name.id
        for call in calls
        if called(call) in _COLLECTIVES
        for name in ast.walk(call)
        if isinstance(name, ast.Name)
    }
    for node in ast.walk(scope):
        if (
            isinstance(node, ast.BinOp)
            and isinstance(node.op, ast.Div)
            and node.lineno > line
            and reads(node.left, given.id)
        ):
            by = node.right
            if isinstance(by, ast.Name) and by.id not in shared and _counted(scope, by.id, node.lineno):
                return node.lineno
    return 0


def _counted(scope: ast.AST, name: str, line: int) -> bool:
    """It begins with something, is only added to in a loop, and is given nothing else before the line."""
    found = [binding for binding in bindings(scope, name) if binding.line < line]
    added = [binding for binding in found if binding.augmented and loop_around(scope, binding.line) is not None]
    return bool(added) and found[-1].augmented


@functools.lru_cache(maxsize=32)
def divisions_by_ranks(path: str) -> list[int]:
    """Lines of a file that divide by the number of ranks: by a call of `get_world_size()`, or a name that says so or holds one."""
    found = []
    for node in walk(path):
        by = node.right if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) else None
        if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Div):
            by = node.value
        if isinstance(node, ast.Call) and called(node) in _METHODS and node.args:
            by = node.args[-1]
        if by is not None and _counts_ranks(path, by, 2):
            found.append(int(getattr(node, "lineno", 0)))
    return sorted(found)


def _counts_ranks(path: str, by: ast.expr, depth: int) -> bool:
    names = [node for node in ast.walk(by) if isinstance(node, ast.Name | ast.Attribute)]
    words = [node.id if isinstance(node, ast.Name) else node.attr for node in names]
    if any("world" in word.lower() or word.lower() in ("num_replicas", "n_ranks", "num_ranks") for word in words):
        return True
    scope = scope_at(path, by.lineno)
    if depth == 0 or scope is None or not isinstance(by, ast.Name):
        return False
    before = [one for one in bindings(scope, by.id) if one.line < by.lineno]
    return bool(before) and _counts_ranks(path, before[-1].value, depth - 1)


_READ_BY = ("print", "float", "round", "item", "log", "append", "info", "format")


def undivided_mean(path: str, line: int) -> bool:
    """Whether the statement at this line gives a collective a name that was bound to a mean before, and the name is only compared, printed or read after it:
    nothing divides it, nothing else takes it."""
    scope = scope_at(path, line)
    call = (
        next(
            (node for node in ast.walk(scope) if isinstance(node, ast.Call) and node.lineno == line and node.args), None
        )
        if scope
        else None
    )
    if scope is None or call is None or not isinstance(call.args[0], ast.Name):
        return False
    name = call.args[0].id
    before = [binding for binding in bindings(scope, name) if binding.line < line]
    if not before or before[-1].augmented or before[-1].loop or not _is_mean(before[-1].value):
        return False
    uses = [
        (parent, node)
        for parent in ast.walk(scope)
        for node in ast.iter_child_nodes(parent)
        if is_name(node, name) and getattr(node, "lineno", 0) > line
    ]
    return bool(uses) and all(_only_reads(scope, parent, node) for parent, node in uses)


def _is_mean(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "mean"


def _only_reads(scope: ast.AST, parent: ast.AST, node: ast.AST) -> bool:
    if isinstance(parent, ast.Attribute) and parent.attr == "item":
        around = [
            one
            for one in ast.walk(scope)
            for inner in ast.iter_child_nodes(one)
            if isinstance(inner, ast.Call) and inner.func is parent
        ]
        return all(_is_read(one) for one in around)
    return _is_read(parent)


def _is_read(parent: ast.AST) -> bool:
    if isinstance(parent, ast.Call):
        name = parent.func.id if isinstance(parent.func, ast.Name) else getattr(parent.func, "attr", "")
        return name in _READ_BY
    return isinstance(parent, ast.FormattedValue | ast.Compare)
