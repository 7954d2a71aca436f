"""Questions about a source file that are answered by line numbers: where a name gets its value, what a call is given."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Sequence

from tensonde.program.syntax import covers, is_name, spelled, targets, walk


def assignment(path: str, name: str, before: int | None = None) -> int | None:
    """The line of the last assignment to a name (before a line, if given)."""
    found: int | None = None
    for node in walk(path):
        if not isinstance(node, ast.Assign | ast.AnnAssign) or (before is not None and node.lineno >= before):
            continue
        if any(_binds(target, name) for target in targets(node)):
            found = node.lineno if found is None else max(found, node.lineno)
    return found


def attribute_assignment(path: str, name: str, first: int, last: int) -> int | None:
    """The first line between two that assigns `something.name`."""
    for node in walk(path):
        if (
            isinstance(node, ast.Assign | ast.AnnAssign)
            and first <= node.lineno <= last
            and any(isinstance(t, ast.Attribute) and t.attr == name for t in targets(node))
        ):
            return node.lineno
    return None


def names_at(path: str, line: int) -> set[str]:
    """Names that the call on a line is given as arguments."""
    found: set[str] = set()
    for node in walk(path):
        if isinstance(node, ast.Call) and covers(node, line):
            for argument in [*node.args, *(keyword.value for keyword in node.keywords)]:
                if isinstance(argument, ast.Name):
                    found.add(argument.id)
    return found


def products(path: str, line: int) -> list[tuple[str, str]]:
    """What stands on both sides of each `*` on a line."""
    return [
        (ast.unparse(node.left), ast.unparse(node.right))
        for node in walk(path)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and covers(node, line)
    ]


def given_twice(path: str, names: Sequence[str]) -> list[int]:
    """Lines of calls that are given one of these variables twice: `push(next_obs, action, next_obs)`."""
    found = []
    for node in walk(path):
        if isinstance(node, ast.Call):
            given = [a.id for a in [*node.args, *(k.value for k in node.keywords)] if isinstance(a, ast.Name)]
            if any(given.count(name) > 1 for name in names):
                found.append(node.lineno)
    return found


def first_argument(path: str, line: int, called: str) -> str | None:
    """The name that a call on a line is given first: `data` of `DataLoader(data, ...)`."""
    for node in walk(path):
        if (
            isinstance(node, ast.Call)
            and covers(node, line)
            and spelled(node.func).rpartition(".")[2] == called
            and node.args
        ):
            return node.args[0].id if isinstance(node.args[0], ast.Name) else None
    return None


def keyword_argument(path: str, line: int, called: str, keyword: str) -> str | None:
    """The name that a call on a line is given by a keyword: `sampler` of `DataLoader(data, sampler=sampler)`."""
    for node in walk(path):
        if isinstance(node, ast.Call) and covers(node, line) and spelled(node.func).rpartition(".")[2] == called:
            given = next((word.value for word in node.keywords if word.arg == keyword), None)
            return given.id if isinstance(given, ast.Name) else None
    return None


def target_name(path: str, line: int) -> str | None:
    """`targets` of `cross_entropy(logits, targets.reshape(-1))`: what the call on a line with two arguments is given
    second."""
    for node in walk(path):
        if isinstance(node, ast.Call) and len(node.args) == 2 and covers(node, line):
            given: ast.expr = node.args[1]
            while isinstance(given, ast.Call | ast.Attribute | ast.Subscript):
                given = given.func if isinstance(given, ast.Call) else given.value
            if isinstance(given, ast.Name):
                return given.id
    return None


def only_call(path: str, name: str) -> int | None:
    """The line of the one call of a function (or method) in its file, None if there are several."""
    found = [
        node.lineno
        for node in walk(path)
        if isinstance(node, ast.Call) and spelled(node.func).rpartition(".")[2] == name
    ]
    return found[0] if len(found) == 1 else None


def around_loop(path: str, line: int) -> int | None:
    """The first line inside the loop that holds the loop which begins on this line: where an epoch begins."""
    loops = [node for node in walk(path) if isinstance(node, ast.For | ast.While)]
    inner = [loop for loop in loops if loop.lineno <= line <= loop.body[0].lineno - 1 or loop.lineno == line]
    if not inner:
        return None
    own = max(inner, key=lambda loop: loop.lineno)
    outer = [loop for loop in loops if loop is not own and loop.lineno <= own.lineno <= (loop.end_lineno or 0)]
    return max(outer, key=lambda loop: loop.lineno).body[0].lineno if outer else None


def only_train_call(path: str) -> int | None:
    """The line of the one `model.train()` in a file, None if there are several."""
    found = [
        node.lineno
        for node in walk(path)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "train"
        and not node.keywords
        and all(isinstance(given, ast.Constant) and given.value is True for given in node.args)
    ]
    return found[0] if len(found) == 1 else None


def no_grad_line(path: str, line: int) -> int | None:
    """The `with torch.no_grad():` around a line, or the decorator of the function that it is in; the innermost."""
    best: tuple[int, int] | None = None
    for node in walk(path):
        end = getattr(node, "end_lineno", None)
        if end is None or not getattr(node, "lineno", line + 1) <= line <= end:
            continue
        guards: list[ast.expr] = []
        if isinstance(node, ast.With | ast.AsyncWith):
            guards = [item.context_expr for item in node.items]
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            guards = list(node.decorator_list)
        for guard in guards:
            if any(word in ast.dump(guard) for word in _WITHOUT_GRAD):
                size = end - node.lineno  # type: ignore[attr-defined]
                if best is None or size < best[0]:
                    best = (size, guard.lineno)
    return best[1] if best else None


def evaluation_start(path: str, line: int) -> int | None:
    """The `with` without gradients around a line; else the first statement of the function that it is in."""
    best: tuple[int, int] | None = None
    for node in walk(path):
        end = getattr(node, "end_lineno", None)
        if end is None or not getattr(node, "lineno", line + 1) <= line <= end:
            continue
        if isinstance(node, ast.With | ast.AsyncWith):
            if not any(word in ast.dump(item) for item in node.items for word in _WITHOUT_GRAD):
                continue
            size, number = end - node.lineno, node.lineno
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not _trains(node):
            body = node.body[1:] if ast.get_docstring(node) and len(node.body) > 1 else node.body
            size, number = end - node.lineno, body[0].lineno
        else:
            continue
        if best is None or size < best[0]:
            best = (size, number)
    return best[1] if best else None


def apart_from_training(path: str, line: int) -> bool:
    """Whether the loops that go backward leave this line out: it stands in the same function as one, or in a function that is called there, and
    nowhere else, by its name. One that is handed on may be called anywhere. What such a loop reads is data that are made for it, as a rollout is.
    """
    nodes = list(walk(path))
    loops = [node for node in nodes if isinstance(node, ast.For | ast.While)]
    inner = [loop for loop in loops if _trains(loop) and not any(_trains(part) for part in _loops_in(loop))]
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]

    def around(at: int) -> ast.AST | None:
        return max((node for node in functions if covers(node, at)), key=lambda node: node.lineno, default=None)

    read = {n.id for loop in inner for n in ast.walk(loop) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}

    def beside(at: int) -> bool:
        made = {
            name.id
            for node in nodes
            if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) and covers(node, at)
            for name in ast.walk(node)
            if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
        }
        together = any(around(loop.lineno) is around(at) for loop in inner)
        return together and not made & read and not any(covers(loop, at) for loop in inner)

    function = around(line)
    if beside(line):
        return True
    if not isinstance(function, ast.FunctionDef) or any(covers(loop, line) for loop in inner):
        return False
    calls = [
        n for n in nodes if isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id == function.name
    ]
    named = [n for n in nodes if isinstance(n, ast.Name) and n.id == function.name]
    return bool(calls) and len(named) == len(calls) and all(beside(call.lineno) for call in calls)


def _loops_in(loop: ast.AST) -> list[ast.AST]:
    return [node for node in ast.walk(loop) if node is not loop and isinstance(node, ast.For | ast.While)]


def first_statement(path: str, line: int) -> int | None:
    """The first line of the body of the function that is defined on a line, after what documents it."""
    for node in walk(path):
        if isinstance(node, ast.FunctionDef) and node.lineno <= line <= node.body[0].lineno:
            body = node.body[1:] if ast.get_docstring(node) and len(node.body) > 1 else node.body
            return body[0].lineno
    return None


def _trains(node: ast.AST) -> bool:
    return any(isinstance(part, ast.Attribute) and part.attr == "backward" for part in ast.walk(node))


_WITHOUT_GRAD = ("'no_grad'", "'inference_mode'", "'set_grad_enabled'")


def backward_name(path: str, line: int) -> str | None:
    """`loss` of `loss.backward()`, also of `scaler.scale(loss).backward()`, on a line."""
    for node in walk(path):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "backward"
            and covers(node, line)
        ):
            given = node.func.value
            if isinstance(given, ast.Call) and len(given.args) == 1:
                given = given.args[0]
            return given.id if isinstance(given, ast.Name) else None
    return None


@functools.lru_cache(maxsize=32)
def freezes(path: str) -> list[int]:
    """Lines that turn `requires_grad` off; where a condition chooses what, the condition."""
    found: list[int] = []
    conditions = [node for node in walk(path) if isinstance(node, ast.If)]
    for node in walk(path):
        if _turns_off(node):
            around = [
                c for c in conditions if any(part is node for stmt in (*c.body, *c.orelse) for part in ast.walk(stmt))
            ]
            chosen = max((c.lineno for c in around), default=None)
            found.append(chosen if chosen is not None else node.lineno)  # type: ignore[attr-defined]
    return sorted(set(found))


def _turns_off(node: ast.AST) -> bool:
    """`p.requires_grad = False` (or by a condition), `p.requires_grad_(False)`."""
    if isinstance(node, ast.Assign):
        on = isinstance(node.value, ast.Constant) and node.value.value is True
        return not on and any(isinstance(t, ast.Attribute) and t.attr == "requires_grad" for t in node.targets)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "requires_grad_":
        given = [*node.args, *(keyword.value for keyword in node.keywords)]
        return len(given) == 1 and isinstance(given[0], ast.Constant) and given[0].value is False
    return False


def data_assignment(path: str, owner: str, name: str) -> int | None:
    """The line of `owner.name.data = ...`, by the last two names."""
    for node in walk(path):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                names = spelled(target).split(".")
                if names[-1:] == ["data"] and names[-2:-1] == [name] and (owner in names or not owner):
                    return node.lineno
    return None


def accumulations(path: str, first: int, last: int) -> Iterator[tuple[str, int]]:
    """(name, line) of what grows between two lines: `a += b`, `a = a + b`, `a.append(b)`."""
    for node in walk(path):
        number = getattr(node, "lineno", 0)
        if not first <= number <= last:
            continue
        if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
            yield spelled(node.target), number
        elif isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.value, ast.BinOp):
            name = spelled(node.targets[0])
            if isinstance(node.value.op, ast.Add) and name in (spelled(node.value.left), spelled(node.value.right)):
                yield name, number
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("append", "extend", "add", "appendleft")
        ):
            yield spelled(node.func.value), number


def _binds(target: ast.expr, name: str) -> bool:
    if isinstance(target, ast.Tuple | ast.List):
        return any(_binds(part, name) for part in target.elts)
    return is_name(target, name)
