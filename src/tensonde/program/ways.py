"""What a program's text does to a value on its way to a step.

A variable is followed back through assignments, loops, comprehensions, arguments, functions, generators, datasets and what is put into lists, by the text alone: nothing of the
user's is run. On the way, whatever puts rows into another order, chooses rows or turns axes is noted; where two ways part, `parting` says.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache

from tensonde.program.picks import (
    along_others,
    backwards,
    behind_first,
    counted,
    moves,
    moves_first,
    takes_all,
    what_was_done,
)
from tensonde.program.syntax import called, covers, is_name, parse, scope_at, spelled, statements

_DEPTH = 40
_MOST = 600
"""Expressions that are looked at."""
_ORDERS = frozenset(
    ("permutation", "permuted", "randperm", "shuffle", "sort", "sorted", "argsort", "roll", "flip", "fliplr", "flipud", "reversed", "reverse", "rot90", "sample",
     "choice", "choices")
)  # fmt: skip
_EACH_COLUMN = frozenset(("permuted", "sort"))
_VALUES = frozenset(("sample", "choice", "choices"))
"""Draws that make a value, where one sample is made."""
_SHAPES = frozenset(("reshape", "view", "tile", "repeat", "repeat_interleave"))
_TURNS = frozenset(("transpose", "permute", "swapaxes", "moveaxis", "movedim"))
_JOINS = frozenset(("stack", "column_stack", "hstack", "vstack", "cat", "concat", "concatenate", "array", "c_"))
_DOMAINS = frozenset(("log", "log2", "log10", "log1p", "sqrt", "rsqrt", "acos", "asin", "arccos", "arcsin"))
"""Functions that have no value for some numbers."""
_PUTS = frozenset(("append", "extend", "insert", "add", "appendleft"))
_LOADERS = frozenset(
    ("DataLoader", "Subset", "cycle", "iter", "list", "tuple", "next", "tqdm", "islice", "random_split", "deepcopy")
)
"""Calls that hand on what their first argument holds."""
_SIZES = frozenset(
    ("zeros", "ones", "empty", "full", "eye", "arange", "range", "len", "zeros_like", "ones_like", "empty_like", "full_like", "new_zeros", "new_full", "size", "linspace")
)  # fmt: skip
"""Calls whose result does not depend on the values that they are given."""
_COUNTS = frozenset(("arange", "range"))


@dataclass(frozen=True, slots=True)
class Deed:
    """Something that changes which row stands where: `text` is what was done, by itself."""

    path: str
    line: int
    kind: str
    text: str
    inside: bool = False
    """It moves things within each sample, so that samples stay where they are."""
    chosen: bool = False
    """A condition decides whether it is done."""


@dataclass
class Way:
    """What was met on the way back from a value."""

    deeds: list[Deed] = field(default_factory=list)
    lines: set[tuple[str, int]] = field(default_factory=set)
    calls: list[tuple[str, int, str]] = field(default_factory=list)
    """Of functions and classes of the file: where, and the name."""
    counted: bool = False
    """Numbers that are counted up, `arange(9)`, are a part of it."""


def way_of(path: str, line: int, name: str) -> Way:
    """Of the variable of this name, as it is at this line of a file."""
    scope, file = scope_at(path, line), _file(path)
    if scope is None or file is None:
        return Way()
    found = _Follower(path, file)
    found.name(name, scope, (), _DEPTH, line)
    return found.way


Where = tuple[object, ...]


@dataclass(frozen=True)
class _File:
    """A file's definitions and calls, gone through once: each scope with the one around it, each call and comprehension with its scope."""

    tree: ast.AST
    functions: list[ast.FunctionDef]
    classes: list[ast.ClassDef]
    calls: list[tuple[ast.Call, ast.AST]]
    made: list[ast.Assign]
    comprehensions: list[ast.ListComp | ast.GeneratorExp]
    around: dict[int, ast.AST]
    owner: dict[int, ast.ClassDef]
    imported: set[str]


@lru_cache(maxsize=4)
def _file(path: str) -> _File | None:
    tree = parse(path)
    if tree is None:
        return None
    found = _File(tree, [], [], [], [], [], {}, {}, set())
    waiting: list[tuple[ast.AST, ast.AST]] = [(tree, tree)]
    while waiting:
        node, scope = waiting.pop()
        if isinstance(node, ast.FunctionDef):
            found.functions.append(node)
            found.around[id(node)] = scope
        elif isinstance(node, ast.ClassDef):
            found.classes.append(node)
            found.owner.update({id(part): node for part in node.body})
        elif isinstance(node, ast.Call):
            found.calls.append((node, scope))
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found.imported.update((name.asname or name.name).split(".")[0] for name in node.names)
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            found.made.append(node)
        elif isinstance(node, ast.ListComp | ast.GeneratorExp):
            found.comprehensions.append(node)
        inside = node if isinstance(node, ast.FunctionDef) else scope
        waiting += [(child, inside) for child in ast.iter_child_nodes(node)]
    return found


class _Follower:
    def __init__(self, path: str, file: _File) -> None:
        self.path, self.file, self.way = path, file, Way()
        self._seen: set[tuple[object, ...]] = set()
        self._inner: dict[tuple[int, str], list[tuple[ast.expr, Where]]] = {}
        """Names that comprehensions and collate functions bind, by scope."""
        self._entered: dict[int, tuple[ast.Call, ast.AST]] = {}
        """By function: the call by which it is looked into, and its scope. Other calls have other arguments."""

    def name(self, name: str, scope: ast.AST, where: Where, depth: int, before: int = 1 << 30) -> None:
        """All that gives a name its value before a line, or else at all: in its scope, in those around it, or where the function is called."""
        key = (id(scope), name, where, before, self._by(scope))
        if depth <= 0 or key in self._seen:
            return
        self._seen.add(key)
        found = False
        for value, path in self._inner.get((id(scope), name), ()):
            found = True
            self.follow(value, scope, (*path, *where), depth - 1)
        for limit in (before, 1 << 30):
            if not found:
                for node in statements(scope):
                    found |= node.lineno <= limit and self._bound(node, name, scope, where, depth)
        if isinstance(scope, ast.FunctionDef) and name in (names := [a.arg for a in scope.args.args]):
            self._arguments(scope, names, name, where, depth)
        elif not found and not isinstance(scope, ast.Module):
            self.name(name, self.file.around.get(id(scope), self.file.tree), where, depth - 1)

    def _bound(self, node: ast.stmt, name: str, scope: ast.AST, where: Where, depth: int) -> bool:
        """Whether a statement gives the name a value, or changes what it holds."""
        found = False
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                for path in _places(target, name):
                    if not _same_column(target, where):
                        continue
                    found = True
                    self._line(node)
                    self.follow(node.value, scope, (*path, *where), depth - 1)
                    if isinstance(target, ast.Subscript) and isinstance(
                        node.value, ast.Constant
                    ):  # what counts is where
                        self.follow(target.slice, scope, (), depth - 1)
        elif isinstance(node, ast.For):
            for path in _places(node.target, name):
                found = True
                self.follow(node.iter, scope, (*path, *where), depth - 1)
        elif isinstance(node, ast.Expr) and isinstance(call := node.value, ast.Call):
            owner = spelled(call.func.value) if isinstance(call.func, ast.Attribute) else ""
            if owner == name and called(call) in _PUTS:
                found = True
                self._line(node)
                for given in call.args[-1:]:
                    self.follow(given, scope, where, depth - 1)
            if called(call) in _ORDERS and (owner == name or any(is_name(given, name) for given in call.args)):
                self._deed(call, "order", what_was_done(call))
        return found

    def _arguments(self, function: ast.FunctionDef, names: list[str], name: str, where: Where, depth: int) -> None:
        """What the calls of a function (or of the class whose method it is) give for a parameter."""
        owner = self._class_around(function)
        wanted = owner.name if owner is not None and function.name == "__init__" else function.name
        place = names.index(name) - (owner is not None)
        entered = self._entered.get(id(function))
        for node, around in self.file.calls if entered is None else [entered]:
            if called(node) != wanted:
                continue
            given = [k.value for k in node.keywords if k.arg == name] or node.args[place : place + 1] * (place >= 0)
            for value in given:
                self._comprehensions(around, node)
                self.follow(value, around, where, depth - 1)

    def follow(self, node: ast.expr, scope: ast.AST, where: Where, depth: int) -> None:
        key = (id(node), where, self._by(scope))
        if depth <= 0 or key in self._seen or len(self._seen) > _MOST:
            return
        self._seen.add(key)
        self._line(node)
        match node:
            case ast.Name(id=name):
                self.name(name, scope, where, depth, node.lineno)
            case ast.Attribute(attr="T" | "mT", value=value):
                self._deed(node, "turn" if node.attr == "T" else "shape", node.attr, inside=self._in_sample(scope))
                self.follow(value, scope, where, depth - 1)
            case ast.Attribute():
                self._attribute(node, scope, where, depth)
            case ast.Tuple(elts=parts) | ast.List(elts=parts) if (
                where and isinstance(k := _place(where[0]), int) and k < len(parts)
            ):
                self.follow(parts[k], scope, where[1:], depth - 1)
            case ast.Dict(keys=keys, values=values) if where:
                for key_node, value in zip(keys, values, strict=True):
                    if isinstance(key_node, ast.Constant) and key_node.value == where[0]:
                        self.follow(value, scope, where[1:], depth - 1)
            case ast.Subscript(value=value, slice=ast.Constant(value=chosen)):
                self.follow(value, scope, (chosen, *where), depth - 1)
            case ast.Subscript(value=value, slice=chosen):
                if self._is_mapping(value, scope):  # what is looked up in it says which
                    self.follow(chosen, scope, (), depth - 1)
                    return
                column = _column(chosen)
                where = (column, *where) if column is not None else where
                if isinstance(value, ast.Subscript):  # rows first, then what is in them
                    self.follow(value, scope, where, depth - 1)
                self._chosen(node, chosen, scope)
                self.follow(value, scope, where, depth - 1)
            case ast.ListComp(generators=[only]) | ast.GeneratorExp(generators=[only]) if (
                where
                and isinstance(k := where[0], int)
                and isinstance(only.iter, ast.Tuple | ast.List)
                and isinstance(only.target, ast.Name)
                and k < len(only.iter.elts)
            ):  # one after the other, the same is done to each
                self._inner[id(scope), only.target.id] = [(only.iter.elts[k], ())]
                self.follow(node.elt, scope, where[1:], depth - 1)
            case ast.ListComp() | ast.GeneratorExp() | ast.SetComp():
                self._bind(scope, node)
                self.follow(node.elt, scope, where, depth - 1)
            case ast.Call():
                self._called(node, scope, where, depth)
            case _:
                if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
                    self._deed(node, "division", ast.unparse(node.right))
                for part in ast.iter_child_nodes(node):
                    if isinstance(part, ast.expr) and not isinstance(part, ast.Constant):
                        self.follow(part, scope, where if isinstance(node, ast.IfExp) else (), depth - 1)

    def _attribute(self, node: ast.Attribute, scope: ast.AST, where: Where, depth: int) -> None:
        """`self.y`: all that methods of the class put into it. Of another object: those of any class of the file that sets it."""
        own = self._class_around(scope) if is_name(node.value, "self") else None
        owners = [own] if own is not None else self.file.classes
        key = (node.attr, where, *(id(owner) for owner in owners))
        if key in self._seen:
            return
        self._seen.add(key)
        found = False
        for owner in owners:
            for method in owner.body:
                if isinstance(method, ast.FunctionDef):
                    for statement in statements(method):
                        found |= self._bound(statement, f"self.{node.attr}", method, where, depth)
        if not found and own is None:  # of an object of a library's: what it was made of
            self.follow(node.value, scope, where, depth - 1)

    def _called(self, node: ast.Call, scope: ast.AST, where: Where, depth: int) -> None:
        name = called(node)
        given = [*node.args, *(k.value for k in node.keywords if k.arg not in (None, "key"))]
        if name in _SIZES:
            self.way.counted |= name in _COUNTS
            return
        if name == "enumerate" and given:
            self.follow(given[0], scope, where[1:], depth - 1)
        elif name == "map" and len(given) == 2 and isinstance(given[1], ast.Tuple | ast.List):
            parts = given[1].elts
            for value in [parts[where[0]]] if where and isinstance(where[0], int) and where[0] < len(parts) else parts:
                self.follow(value, scope, where[1:], depth - 1)
        elif name == "zip" and len(given) == 1 and isinstance(given[0], ast.Starred):  # parts of samples
            self.follow(given[0].value, scope, where, depth - 1)
        elif name == "zip":
            chosen = [given[where[0]]] if where and isinstance(where[0], int) and where[0] < len(given) else given
            for value in chosen:
                self.follow(value, scope, where[1:], depth - 1)
        elif name == "TensorDataset" and where and isinstance(where[0], int) and where[0] < len(given):
            self.follow(given[where[0]], scope, where[1:], depth - 1)
        elif name in _LOADERS and given:
            self._loaded(node, given[0], scope, where, depth)
        elif (owner := self._class_named(name)) is not None:
            self.way.calls.append((self.path, node.lineno, name))
            made = next((m for m in owner.body if isinstance(m, ast.FunctionDef) and m.name == "__init__"), owner)
            with self._looking_into(made, node, scope):
                self._items(owner, where, depth)
        elif isinstance(function := self._function_named(name), ast.FunctionDef) and (
            name not in _ORDERS | _SHAPES | _TURNS or self._is_method(node, function, scope)
        ):
            self.way.calls.append((self.path, node.lineno, name))
            with self._looking_into(function, node, scope):
                self._results(function, where, depth)
        else:
            if name in _ORDERS or name in _SHAPES or name in _TURNS:
                inside = self._in_sample(scope) or along_others(node)
                kind, text = ("order", what_was_done(node)) if name in _ORDERS else ("shape", name)
                if name in _EACH_COLUMN and where and isinstance(where[0], _Column):
                    text += f", column {where[0].number}"  # each gets an order of its own
                if not inside or name not in _VALUES:
                    self._deed(node, "turn" if name in _TURNS and moves_first(node) else kind, text, inside=inside)
            elif name in _JOINS or name in _DOMAINS:
                self._deed(node, "join" if name in _JOINS else "domain", name)
            held = [node.func.value] if isinstance(node.func, ast.Attribute) else []
            for value in [*held, *given]:
                self.follow(value, scope, where if len(given) + len(held) == 1 else (), depth - 1)

    @contextmanager
    def _looking_into(self, function: ast.AST, call: ast.Call, scope: ast.AST) -> Iterator[None]:
        before = dict(self._entered)
        self._entered[id(function)] = call, scope
        try:
            yield
        finally:
            self._entered = before

    def _by(self, scope: ast.AST) -> int:
        """The call by which a function is looked into."""
        entered = self._entered.get(id(scope))
        return id(entered[0]) if entered is not None else 0

    def _loaded(self, node: ast.Call, data: ast.expr, scope: ast.AST, where: Where, depth: int) -> None:
        collate = next((k.value for k in node.keywords if k.arg == "collate_fn"), None)
        function = self._function_named(spelled(collate).split(".")[-1]) if collate is not None else None
        if isinstance(function, ast.FunctionDef) and function.args.args:
            self._inner.setdefault((id(function), function.args.args[-1].arg), []).append((data, ()))
            self._results(function, where, depth)
        else:
            self.follow(data, scope, where, depth - 1)

    def _items(self, owner: ast.ClassDef, where: Where, depth: int) -> None:
        for method in owner.body:
            if isinstance(method, ast.FunctionDef) and method.name in ("__getitem__", "__iter__", "__next__"):
                self._results(method, where, depth)

    def _results(self, function: ast.FunctionDef, where: Where, depth: int) -> None:
        """What a function returns or yields."""
        inner = [n for n in statements(function) if isinstance(n, ast.FunctionDef)]
        for node in statements(function):
            value = node.value if isinstance(node, ast.Return | ast.Expr) else None
            if isinstance(value, ast.Yield | ast.YieldFrom):
                value = value.value
            elif isinstance(node, ast.Expr):
                continue
            made = next((n for n in inner if value is not None and is_name(value, n.name)), None)
            if made is not None:  # a function that is made here, and called later
                self._results(made, where, depth - 1)
            elif value is not None:
                self.follow(value, function, where, depth - 1)

    # -- what is around ------------------------------------------------------------------------------

    def _class_around(self, scope: ast.AST) -> ast.ClassDef | None:
        return self.file.owner.get(id(scope))

    def _in_sample(self, scope: ast.AST, depth: int = 3) -> bool:
        """The code of a scope sees one sample at a time: a data set's `__getitem__`, and what only that calls."""
        if not isinstance(scope, ast.FunctionDef) or depth <= 0:
            return False
        if scope.name == "__getitem__":
            return True
        around = [(node, place) for node, place in self.file.calls if called(node) == scope.name]
        each = {id(part) for c in self.file.comprehensions if counted(c) for part in ast.walk(c.elt)}
        return bool(around) and all(id(node) in each or self._in_sample(place, depth - 1) for node, place in around)

    def _is_method(self, node: ast.Call, function: ast.FunctionDef, scope: ast.AST) -> bool:
        """A method of a class of the file that has the name of a library's function: `buffer.sample(32)`, and not `random.sample(rows, 32)`."""
        if not isinstance(node.func, ast.Attribute) or self._class_around(function) is None or scope is function:
            return False
        return spelled(node.func.value).split(".")[0] not in self.file.imported

    def _class_named(self, name: str) -> ast.ClassDef | None:
        return next((n for n in self.file.classes if n.name == name), None)

    def _function_named(self, name: str) -> ast.FunctionDef | None:
        """Also one that another function gave: `following = batcher(...)`."""
        found = next((n for n in self.file.functions if n.name == name), None)
        if found is None and name:
            for node in self.file.made:
                for target, value in _paired(node):
                    if is_name(target, name) and isinstance(value, ast.Call):
                        found = next((n for n in self.file.functions if n.name == called(value)), None)
        return found

    def _is_mapping(self, value: ast.expr, scope: ast.AST) -> bool:
        """A dictionary, by the text: what is looked up there is no row."""
        name = spelled(value)
        bound = [n for around in (scope, self.file.tree) for n in statements(around) if isinstance(n, ast.Assign)]
        given = [n.value for n in bound if any(spelled(target) == name for target in n.targets)]
        return bool(given) and all(isinstance(part, ast.Dict | ast.DictComp) for part in given)

    def _comprehensions(self, scope: ast.AST, inside: ast.AST) -> None:
        """Those that something stands in."""
        for node in self.file.comprehensions:
            if covers(node, inside.lineno) and any(part is inside for part in ast.walk(node)):  # type: ignore[attr-defined]
                self._bind(scope, node)

    def _bind(self, scope: ast.AST, node: ast.ListComp | ast.GeneratorExp | ast.SetComp) -> None:
        for generator in node.generators:
            for part in ast.walk(generator.target):
                if isinstance(part, ast.Name):
                    bound = self._inner.setdefault((id(scope), part.id), [])
                    bound += [
                        (generator.iter, path)
                        for path in _places(generator.target, part.id)
                        if (generator.iter, path) not in bound
                    ]

    # -- what is noted -------------------------------------------------------------------------------

    def _line(self, node: ast.stmt | ast.expr) -> None:
        self.way.lines.add((self.path, node.lineno))

    def _deed(self, node: ast.expr, kind: str, text: str, *, inside: bool = False) -> None:
        deed = Deed(self.path, node.lineno, kind, text, inside, kind == "division" and self._on_condition(node))
        if deed not in self.way.deeds:
            self.way.deeds.append(deed)

    def _on_condition(self, node: ast.expr) -> bool:
        """It stands in a branch, within a function."""
        around = [n for n in ast.walk(self.file.tree) if isinstance(n, ast.If | ast.IfExp) and covers(n, node.lineno)]
        return any(covers(f, n.lineno) for f in self.file.functions for n in around)

    def _chosen(self, node: ast.Subscript, chosen: ast.expr, scope: ast.AST) -> None:
        """Rows or parts are taken. What only adds dimensions takes all."""
        kind, text = "index", ast.unparse(chosen)
        if all(takes_all(part) for part in (chosen.elts if isinstance(chosen, ast.Tuple) else [chosen])):
            return
        for part in ast.walk(chosen):
            if isinstance(part, ast.Call) and called(part) in _ORDERS:
                kind, text = "order", what_was_done(part)
            elif backwards(part):
                kind = "order"
        if kind == "index" and not isinstance(chosen, ast.Slice | ast.Tuple) and moves(chosen):
            kind = "shift"
        if kind == "index" and _column(chosen) is not None and takes_all(chosen.elts[0]):  # type: ignore[attr-defined]
            return
        inside = kind == "order" and (self._in_sample(scope) or behind_first(chosen))
        self._deed(node, kind, text, inside=inside)
        for part in ast.walk(chosen):  # an order that a variable holds, or that a loop goes through
            for call, looped in self._orders_of(part.id, scope, node.lineno) if isinstance(part, ast.Name) else ():
                self._deed(call if looped else node, "order", what_was_done(call))

    def _orders_of(self, name: str, scope: ast.AST, line: int, depth: int = 3) -> Iterator[tuple[ast.Call, bool]]:
        """Calls that give the rows which an index goes through; whether a loop or a comprehension does so. Of several statements that bind the name, the last before the line."""
        held = [(given, True) for given, _ in self._inner.get((id(scope), name), ())]
        bound: tuple[ast.expr, bool] | None = None
        for node in statements(scope):
            if node.lineno > line:
                continue
            if isinstance(node, ast.Assign) and any(is_name(target, name) for target in node.targets):
                bound = node.value, False
            elif isinstance(node, ast.For) and is_name(node.target, name) and covers(node, line):
                bound = node.iter, True
        for value, looped in [*held, bound] if bound is not None else held:
            given = value.value if isinstance(value, ast.Subscript) else value
            if isinstance(given, ast.Call) and called(given) in _ORDERS:
                yield given, looped and given.lineno != line
            elif isinstance(given, ast.Name) and given.id != name and depth:
                yield from ((call, False) for call, _ in self._orders_of(given.id, scope, value.lineno, depth - 1))


@dataclass(frozen=True)
class _Column:
    """On the way back: one column of a table, which may be a list of tuples."""

    number: int


def _place(part: object) -> object:
    return part.number if isinstance(part, _Column) else part


def _column(chosen: ast.expr) -> _Column | None:
    """`[:, 2]`: of all rows, or some."""
    if isinstance(chosen, ast.Tuple) and len(chosen.elts) == 2 and isinstance(last := chosen.elts[1], ast.Constant):
        return _Column(last.value) if type(last.value) is int and isinstance(chosen.elts[0], ast.Slice) else None
    return None


def _same_column(target: ast.expr, where: Where) -> bool:
    """What is written may be what is looked for: `x[:, 1] = ...` is no other column."""
    written = _column(target.slice) if isinstance(target, ast.Subscript) else None
    return written is None or not where or not isinstance(where[0], _Column) or where[0] == written


def _paired(node: ast.Assign) -> Iterator[tuple[ast.expr, ast.expr]]:
    for target in node.targets:
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            yield from zip(target.elts, node.value.elts, strict=False)
        else:
            yield target, node.value


def _places(target: ast.expr, name: str, at: Where = ()) -> Iterator[Where]:
    """Where in what is assigned the value of a name stands; of `x[k] = value`, all of it."""
    if isinstance(target, ast.Tuple | ast.List):
        for k, inner in enumerate(target.elts):
            yield from _places(inner, name, (*at, k))
    elif spelled(target) == name:
        yield at
