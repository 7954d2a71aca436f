"""Habits of training programs in their source: rates that are set, averages of parameters, layers that are multiplied."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from types import CodeType
from typing import Any

from tensonde.program.syntax import called, covers, is_name, targets, walk

_MAKING = frozenset(
    ("div", "true_divide", "divide", "pow", "power", "float_power", "log", "log2", "log10", "sqrt", "rsqrt", "reciprocal", "exp")
)  # fmt: skip
"""Calls that may make NaN or Inf of finite numbers."""


def hyperparameter_set(path: str, where: str, key: str) -> Iterator[int]:
    """Lines such as `optimizer.defaults["lr"] = ...`, `optimizer.lr *= ...`."""
    for node in walk(path):
        for target in targets(node) if isinstance(node, ast.Assign | ast.AugAssign) else ():
            if where == "attribute":
                if isinstance(target, ast.Attribute) and target.attr == key and not is_name(target.value, "self"):
                    yield target.lineno
            elif (
                isinstance(target, ast.Subscript)
                and isinstance(target.value, ast.Attribute)
                and target.value.attr == "defaults"
                and isinstance(target.slice, ast.Constant)
                and target.slice.value == key
            ):
                yield target.lineno


def ignoring_gradient(backward: CodeType) -> int | None:
    """The line of the result of a `backward` that reads none of its gradients; None of one that does."""
    node = _defined(backward)
    if node is None:
        return None
    given = {argument.arg for argument in node.args.args[1:]}
    given |= {node.args.vararg.arg} if node.args.vararg else set()
    if any(isinstance(part, ast.Name) and part.id in given for part in ast.walk(node)):
        return None
    return result_line(backward) if given else None


def result_line(code: CodeType) -> int | None:
    """The line that computes what a function returns: its last `return`, or the assignment of the one name that this gives."""
    node = _defined(code)
    returned = (
        [p for p in ast.walk(node) if isinstance(p, ast.Return) and p.value is not None] if node is not None else []
    )
    computed = [part for part in returned if any(isinstance(p, ast.Name) for p in ast.walk(part))]
    if node is None or not computed:
        return None
    last = max(computed, key=lambda part: part.lineno)
    names = {p.id for p in ast.walk(last) if isinstance(p, ast.Name)}
    if not any(isinstance(p, ast.BinOp | ast.Call | ast.UnaryOp) for p in ast.walk(last)) and len(names) == 1:
        made = [
            p.lineno
            for p in ast.walk(node)
            if isinstance(p, ast.Assign | ast.AugAssign) and any(is_name(t, name) for t in targets(p) for name in names)
        ]
        return max(made, default=last.lineno)
    return last.lineno


def _defined(code: CodeType) -> ast.FunctionDef | None:
    for node in walk(code.co_filename):
        starts = {node.lineno, *(d.lineno for d in node.decorator_list)} if isinstance(node, ast.FunctionDef) else set()
        if isinstance(node, ast.FunctionDef) and node.name == code.co_name and code.co_firstlineno in starts:
            return node
    return None


def multiplied(path: str, number: int) -> int | None:
    """The line of `[Layer(...), ...] * n` around a line that makes a layer: what is multiplied has no other name."""
    for node in walk(path):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            for side in (node.left, node.right):
                if (
                    isinstance(side, ast.List | ast.Tuple)
                    and covers(side, number)
                    and any(isinstance(part, ast.Call) for part in side.elts)
                ):
                    return side.lineno
    return None


def averaging_updates(path: str, at_once: tuple[str, ...] = (), *, inside: bool = False) -> Iterator[int]:
    """`for a, b in zip(one.parameters(), other.parameters())` over something that averages; a call of a method in `at_once`
    that is given both. `inside`: the line that averages, not that of its loop."""
    for node in walk(path):
        if isinstance(node, ast.For) and _parameters(node.iter) >= 2:
            parts = [part for statement in node.body for part in ast.walk(statement)]
            lines = [part.lineno for part in parts if _averages(part)]  # type: ignore[attr-defined]
            if lines:
                yield lines[0] if inside else node.lineno
        elif isinstance(node, ast.For) and _states(node.iter):
            lines = [line for statement in node.body for line in _averages_by_key(statement, node.target)]
            if lines:
                yield lines[0] if inside else node.lineno
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in at_once
            and _parameters(node)
        ):
            yield node.lineno


def _states(node: ast.expr) -> bool:
    """`model.state_dict().items()`, `model.named_parameters()`"""
    return any(
        isinstance(part, ast.Attribute) and part.attr in ("state_dict", "named_parameters") for part in ast.walk(node)
    )


def _averages_by_key(statement: ast.stmt, target: ast.expr) -> Iterator[int]:
    """`shadow[name].mul_(decay).add_(...)`, `shadow[name] = decay * shadow[name] + ...`, for a name that the loop goes through."""
    names = {part.id for part in ast.walk(target) if isinstance(part, ast.Name)}
    for part in ast.walk(statement):
        parts: list[ast.expr] = []
        if isinstance(part, ast.Attribute) and part.attr in ("mul_", "lerp_", "mul", "lerp"):
            parts = [part.value]
        elif isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mult):
            parts = [part.left, part.right]
        if any(isinstance(p, ast.Subscript) and isinstance(p.slice, ast.Name) and p.slice.id in names for p in parts):
            yield part.lineno  # type: ignore[attr-defined]


def gives_away(code: str) -> bool:
    """Whether a line is a statement such as `shadow.mul(decay).add_(...)`: its first method makes a new tensor, which nothing keeps."""
    try:
        statement = ast.parse(code.strip()).body[0]
    except (SyntaxError, IndexError):
        return False
    node = statement.value if isinstance(statement, ast.Expr) else None
    first = ""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        first, node = node.func.attr, node.func.value
    return first in ("mul", "add", "sub", "div", "lerp", "clone", "detach")


def _averages(node: ast.AST) -> bool:
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.Mult)
    return isinstance(node, ast.Attribute) and node.attr in ("lerp_", "mul_", "lerp")


def _parameters(node: ast.expr) -> int:
    return sum(
        isinstance(part, ast.Attribute) and part.attr in ("parameters", "named_parameters") for part in ast.walk(node)
    )


def loads_under_condition(path: str) -> bool:
    """`load_state_dict` stands inside of an `if` somewhere."""
    return any(
        isinstance(part, ast.Attribute) and part.attr == "load_state_dict"
        for node in walk(path)
        if isinstance(node, ast.If)
        for statement in [*node.body, *node.orelse]
        for part in ast.walk(statement)
    )


def writes_to(path: str, name: str) -> list[int]:
    """Lines that write to a variable's tensor: `x.copy_(...)`, `x[...] = ...`, `x += ...`, `f(..., out=x)`."""
    found = []
    for node in walk(path):
        if isinstance(node, ast.Call):
            method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            own = isinstance(node.func, ast.Attribute) and _is_part_of(node.func.value, name)
            if (own and method.endswith("_") and not method.endswith("__")) or any(
                keyword.arg == "out" and _is_part_of(keyword.value, name) for keyword in node.keywords
            ):
                found.append(node.lineno)
        elif (isinstance(node, ast.AugAssign) and _is_part_of(node.target, name)) or (
            isinstance(node, ast.Assign)
            and any(isinstance(t, ast.Subscript) and _is_part_of(t, name) for t in node.targets)
        ):
            found.append(node.lineno)
    return found


def _is_part_of(node: ast.expr, name: str) -> bool:
    """`name`, or `name[...]`."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return is_name(node, name)


_MIRRORS = frozenset(("flip", "fliplr", "flipud", "hflip", "vflip", "rot90", "mirror"))
_CHANCE = frozenset(
    ("random", "rand", "randint", "rand_like", "uniform", "bernoulli", "choice", "binomial", "integers")
)


def mirrored_alone(path: str) -> Iterator[tuple[int, str]]:
    """Lines that mirror or turn one variable by chance (`if rand() < 0.5: x = x.flip(-1)`), and the variable: in a function that mirrors
    nothing else, and returns it beside something that is not made of it. An image and its mask may also be mirrored as one, or by two calls."""
    for function in walk(path):
        if not isinstance(function, ast.FunctionDef):
            continue
        calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
        mirrored = [(call, given) for call in calls if (given := _mirrored(call)) is not None]
        chance = [part for part in ast.walk(function) if isinstance(part, ast.If) and _by_chance(part.test)]
        inside = {id(node) for part in chance for statement in part.body for node in ast.walk(statement)}
        names = {given for _, given in mirrored}
        if len(names) == 1 and all(id(call) in inside for call, _ in mirrored) and _beside(function, *names):
            yield mirrored[0][0].lineno, mirrored[0][1]


def _beside(function: ast.FunctionDef, name: str) -> bool:
    """The function gives a tuple: `name` in one part, and in another part only what is not made of it."""
    made = {name}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and _uses(node.value, made):
            made |= {part.id for target in node.targets for part in ast.walk(target) if isinstance(part, ast.Name)}
    given = [node.value for node in ast.walk(function) if isinstance(node, ast.Return | ast.Yield)]
    tuples = [value.elts for value in given if isinstance(value, ast.Tuple)]
    return bool(tuples) and all(len({_uses(part, made) for part in parts}) == 2 for parts in tuples)


def _uses(node: ast.AST, names: set[str]) -> bool:
    return any(isinstance(part, ast.Name) and part.id in names for part in ast.walk(node))


def _mirrored(node: ast.Call) -> str | None:
    """What is mirrored: `x.flip(-1)`, `torch.flip(x, [2])`, `hflip(x)`."""
    if called(node) not in _MIRRORS:
        return None
    given = node.args[0] if node.args and isinstance(node.args[0], ast.Name) else None
    own = node.func.value if isinstance(node.func, ast.Attribute) and given is None else given
    return own.id if isinstance(own, ast.Name) else "?"


def _by_chance(test: ast.expr) -> bool:
    return any(isinstance(part, ast.Call) and called(part) in _CHANCE for part in ast.walk(test))


def rates_set(path: str, key: str = "lr") -> Iterator[tuple[int, Any]]:
    """Lines that set a learning rate: `group["lr"] = ...` for a group of some optimizer's `param_groups`; each with the
    number that it sets, where that stands there. `key` is for another hyperparameter."""
    groups = {name for node in walk(path) for name in _groups(node)}
    for node in walk(path):
        if isinstance(node, ast.Assign | ast.AugAssign) and any(
            _is_set(target, groups, key) for target in targets(node)
        ):
            plain = isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
            yield node.lineno, node.value.value if plain else None  # type: ignore[attr-defined]


def _groups(node: ast.AST) -> list[str]:
    """Names that stand for a group: loop variables over `param_groups`, and `group = optimizer.param_groups[0]`."""
    match node:
        case ast.For(target=target, iter=given) | ast.comprehension(target=target, iter=given):
            pass
        case ast.Assign(targets=[target], value=given):
            pass
        case _:
            return []
    if not _mentions(given):
        return []
    return [name.id for name in ast.walk(target) if isinstance(name, ast.Name)]


def _mentions(node: ast.AST) -> bool:
    return any(isinstance(part, ast.Attribute) and part.attr == "param_groups" for part in ast.walk(node))


def _is_set(target: ast.expr, groups: set[str], key: str) -> bool:
    match target:
        case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=given)):
            return name in groups and given == key
        case ast.Subscript(value=group, slice=ast.Constant(value=given)):
            return given == key and _mentions(group)
    return False


def may_overflow(node: ast.expr) -> bool:
    """Whether an expression may make NaN or Inf of finite numbers."""
    match node:
        case ast.BinOp(op=ast.Div() | ast.Pow()):
            return True
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)):
            return name.rstrip("_") in _MAKING
    return False


def turned_on(path: str) -> Iterator[int]:
    """Lines that let parameters require a gradient: `part.requires_grad_(True)`, `p.requires_grad = True`."""
    for node in walk(path):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "requires_grad_":
            given = [*node.args, *(word.value for word in node.keywords)]
            if not given or (isinstance(given[0], ast.Constant) and given[0].value is True):
                yield node.lineno
        elif (
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Constant)
            and node.value.value is True
            and any(isinstance(target, ast.Attribute) and target.attr == "requires_grad" for target in node.targets)
        ):
            yield node.lineno


def remainders_of_hashes(path: str) -> list[int]:
    """Lines such as `hash(word) % buckets`, with Python's own `hash`."""
    parts = list(walk(path))
    if any(isinstance(one, ast.FunctionDef) and one.name == "hash" for one in parts):
        return []
    return sorted(
        {
            one.lineno
            for one in parts
            if isinstance(one, ast.BinOp)
            and isinstance(one.op, ast.Mod | ast.BitAnd)
            and any(isinstance(part, ast.Call) and is_name(part.func, "hash") for part in ast.walk(one.left))
        }
    )
