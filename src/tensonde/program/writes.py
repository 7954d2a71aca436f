"""Methods that write in place into what their object keeps: `img = self.images[i]; img -= mean`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tensonde.program.syntax import scope_at, statements, walk

_VIEWS = frozenset(
    ("view", "reshape", "unsqueeze", "squeeze", "transpose", "permute", "numpy", "float", "to", "from_numpy", "as_tensor", "asarray")
)  # fmt: skip


def kept_writes(path: str, first: int) -> list[tuple[str, int]]:
    """(attribute, line) of what the function that begins at a line writes into, in place, after it took it out of `self`, and
    returns: a count of visits is no data."""
    for node in walk(path):
        if isinstance(node, ast.FunctionDef) and node.lineno <= first <= node.body[0].lineno:
            returned = _returned(node)
            return [(attribute, number) for attribute, number in _writes(node) if attribute in returned]
    return []


def spoiled_later(path: str, line: int) -> int | None:
    """The one line at which NaN or Inf, spelt out, is written into a part of what a line makes: `x[3] = float("nan")`."""
    scope = scope_at(path, line)
    if scope is None:
        return None
    names: set[str] = set()
    lines = []
    for node in statements(scope):
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            if node.lineno <= line <= (node.end_lineno or 0):
                names |= {part.id for part in ast.walk(target) if isinstance(part, ast.Name)}
            elif isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name) and target.value.id in names:
                lines += [node.lineno] if _is_nonfinite(node.value) else []
    return lines[0] if len(lines) == 1 else None


def _is_nonfinite(node: ast.expr) -> bool:
    """`float("nan")`, `-math.inf`, `torch.nan`."""
    if isinstance(node, ast.UnaryOp):
        return _is_nonfinite(node.operand)
    if isinstance(node, ast.Call):
        given = node.args[0] if len(node.args) == 1 else None
        is_float = isinstance(node.func, ast.Name) and node.func.id == "float"
        word = given.value if isinstance(given, ast.Constant) else None
        return is_float and isinstance(word, str) and word.lower().strip("+-") in ("nan", "inf", "infinity")
    return isinstance(node, ast.Attribute) and node.attr in ("nan", "inf", "NaN", "NAN", "Inf")


def _statements(function: ast.FunctionDef) -> list[ast.stmt]:
    found = [node for node in ast.walk(function) if isinstance(node, ast.stmt) and node is not function]
    return sorted(found, key=lambda node: node.lineno)


def _returned(function: ast.FunctionDef) -> set[str]:
    """Attributes of `self` that go into what is returned."""
    behind: dict[str, set[str]] = {}
    found: set[str] = set()
    for statement in _statements(function):
        if isinstance(statement, ast.Return) and statement.value is not None:
            found |= _mentioned(statement.value, behind)
        elif isinstance(statement, ast.Assign):
            for part in (part for target in statement.targets for part in ast.walk(target)):
                if isinstance(part, ast.Name):
                    behind[part.id] = behind.get(part.id, set()) | _mentioned(statement.value, behind)
    return found


def _mentioned(node: ast.expr, behind: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            found |= behind.get(part.id, set())
        elif isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name) and part.value.id == "self":
            found.add(part.attr)
    return found


def _writes(function: ast.FunctionDef) -> Iterator[tuple[str, int]]:
    views: dict[str, str] = {}
    for statement in _statements(function):
        if isinstance(statement, ast.AugAssign):
            attribute = _kept(statement.target, views)
            if attribute:
                yield attribute, statement.lineno
        elif isinstance(statement, ast.Assign | ast.Expr | ast.Return) and statement.value is not None:
            for call in ast.walk(statement.value):
                attribute = _written(call, views) if isinstance(call, ast.Call) else None
                if attribute:
                    yield attribute, statement.lineno
        if isinstance(statement, ast.Assign):
            for target in statement.targets:
                if isinstance(target, ast.Subscript) and isinstance(_root(target), ast.Name):
                    attribute = _kept(target, views)  # into a view; `self.cache[i] = ...` fills a cache
                    if attribute:
                        yield attribute, statement.lineno
                _bind(target, statement.value, views)


def _bind(target: ast.expr, value: ast.expr, views: dict[str, str]) -> None:
    if isinstance(target, ast.Tuple | ast.List):
        same = isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts)
        for k, part in enumerate(target.elts):
            _bind(part, value.elts[k] if same and isinstance(value, ast.Tuple | ast.List) else value, views)
    elif isinstance(target, ast.Name):
        views.pop(target.id, None)
        attribute = _kept(value, views)
        if attribute:
            views[target.id] = attribute


def _kept(node: ast.expr, views: dict[str, str]) -> str | None:
    """The attribute of `self` that an expression is a part of, or a view."""
    indexed = False
    while True:
        if isinstance(node, ast.Subscript):
            node, indexed = node.value, True
        elif isinstance(node, ast.Name):
            return views.get(node.id)
        elif isinstance(node, ast.Attribute):
            if isinstance(node.value, ast.Name) and node.value.id == "self":
                return node.attr if indexed else None
            node = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _VIEWS:
            given = node.func.attr in ("from_numpy", "as_tensor", "asarray")
            if given and not node.args:
                return None
            node = node.args[0] if given else node.func.value
        else:
            return None


def _root(node: ast.expr) -> ast.expr:
    while isinstance(node, ast.Subscript):
        node = node.value
    return node


def _written(call: ast.Call, views: dict[str, str]) -> str | None:
    """`img.sub_(mean)`, `normalize(img, mean, std, inplace=True)`, `np.clip(img, 0, 1, out=img)`."""
    function = call.func
    if isinstance(function, ast.Attribute) and function.attr.endswith("_") and not function.attr.endswith("__"):
        return _kept(function.value, views)
    for keyword in call.keywords:
        if keyword.arg == "out":
            return _kept(keyword.value, views)
        if keyword.arg == "inplace" and isinstance(keyword.value, ast.Constant) and keyword.value.value is True:
            return _kept(call.args[0], views) if call.args else None
    return None
